"""The table of layers: time and work of each side, ratios, and significant differences."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import pandas as pd

from tracer.analyzers.compare.alignment import Layer
from tracer.analyzers.compare.contrast import (
    LEVEL,
    Contrast,
    Sample,
    contrast,
    holm,
    log_ratios,
    of_turns,
    only_first,
    only_second,
)
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.grouping import OF_RUNTIME, named
from tracer.errors import UsageError
from tracer.support.types import FloatArray

WORK = ("macs", "flops", "params", "bytes_read", "bytes_written")
GROUPINGS = ("layer", "module", "op")


def letter(side: int) -> str:
    """Returns the suffix of a side's columns: `a` for the first side."""
    return chr(ord("a") + side)


def table(
    sides: Sequence[Side], layers: Sequence[Layer], by: str, depth: int | None = None
) -> tuple[pd.DataFrame, tuple[Layer, ...]]:
    """Returns a row for each layer, module or operator, and which rows of the sides it stands for.

    The largest change in time is first.

    Columns: `layer` (the first node of the first side that has it), `module`, `op`, `on` (letters
    of the sides that have it); `also_holds` (by module: other modules of the row's nodes, if a
    kernel spans them); for each side `nodes_a` (joined by "; "), `time_us_a` and the work `macs_a`
    …; for each side but the first `ratio_b` to the first, its interval `ratio_low_b` and
    `ratio_high_b`, `change_us_b` and its interval `change_low_us_b` and `change_high_us_b`, `p_b`
    (adjusted by Holm over the layers) and `significant_b`. The change of a row that one side alone
    has is its whole time. Modules below `depth` count for their parent.
    """
    if by not in GROUPINGS:
        raise UsageError(f"cannot compare by '{by}'", f"Compare by {', '.join(GROUPINGS)}, model.")
    named = [_Names(side.nodes, depth) for side in sides]
    folded = _fold(named, layers, by)
    identities = [_identity(named, layer) for layer in folded]
    names = ("layer", "module", "op", "on", *(["also_holds"] if by == "module" else []))
    columns: dict[str, list[Any]] = {name: [each[name] for each in identities] for name in names}
    for index, side in enumerate(sides):
        end = letter(index)
        rows = [layer.rows[index] for layer in folded]
        columns[f"nodes_{end}"] = [named[index].nodes(each) for each in rows]
        samples = side.times_of(rows)
        columns[f"time_us_{end}"] = [math.nan if s is None else s.mean for s in samples]
        columns |= {f"{name}_{end}": list(side.sums_of(name, rows)) for name in WORK}
    for index in range(1, len(sides)):
        columns |= _columns(contrasts(sides[0], sides[index], _rows(folded, index)), letter(index))
    comparison = pd.DataFrame(columns)
    changes = [f"change_us_{letter(index)}" for index in range(1, len(sides))]
    order = comparison[changes].abs().max(axis=1).sort_values(ascending=False, kind="stable")
    ordered = tuple(folded[int(position)] for position in order.index)
    return comparison.loc[order.index].reset_index(drop=True), ordered


RowsOfTwo: TypeAlias = tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
"""The rows of each layer on the first side, and on another."""


def contrasts(first: Side, second: Side, rows: RowsOfTwo) -> list[Contrast]:
    """Compares each layer of two sides; a layer that one side alone has, with nothing."""
    pairs = list(zip(first.times_of(rows[0]), second.times_of(rows[1]), strict=True))
    if first.turns_us is None or second.turns_us is None or not _are_paired(first, second):
        return [_contrast(a, b, None) for a, b in pairs]
    logs = log_ratios(first.turns_of(rows[0]), second.turns_of(rows[1]))
    return [_contrast(a, b, column) for (a, b), column in zip(pairs, logs.T, strict=True)]


def _are_paired(first: Side, second: Side) -> bool:
    """Whether both sides have the same sessions, and more than one."""
    return first.dof == second.dof > 0


def _contrast(first: Sample | None, second: Sample | None, logs: FloatArray | None) -> Contrast:
    if first is None:
        return Contrast() if second is None else only_second(second)
    if second is None:
        return only_first(first)
    return contrast(first, second) if logs is None else of_turns(logs, first, second)


def _columns(contrasts: Sequence[Contrast], end: str) -> dict[str, list[Any]]:
    p = holm([each.p for each in contrasts])
    return {
        f"ratio_{end}": [each.ratio for each in contrasts],
        f"ratio_low_{end}": [each.low for each in contrasts],
        f"ratio_high_{end}": [each.high for each in contrasts],
        f"change_us_{end}": [each.change for each in contrasts],
        f"change_low_us_{end}": [each.change_low for each in contrasts],
        f"change_high_us_{end}": [each.change_high for each in contrasts],
        f"p_{end}": p,
        f"significant_{end}": [each < LEVEL for each in p],  # NaN is not significant
    }


def _rows(layers: Sequence[Layer], index: int) -> RowsOfTwo:
    return [layer.rows[0] for layer in layers], [layer.rows[index] for layer in layers]


class _Names:
    """What the rows of a side are called, as lists: a look into a table takes a hundred times
    as long."""

    def __init__(self, nodes: pd.DataFrame, depth: int | None) -> None:
        columns = ("node", "op_type", "module")
        self._nodes, self._ops, modules = (_texts(nodes, name) for name in columns)
        self._modules = [None if each is None else named(each, depth=depth) for each in modules]
        self._of_runtime = nodes["index"].isna().tolist()

    def nodes(self, rows: Sequence[int]) -> str:
        """Returns the names of some rows."""
        return "; ".join(str(self._nodes[row]) for row in rows)

    def identity(self, rows: Sequence[int]) -> dict[str, Any]:
        """Returns the names of a layer with these rows."""
        if all(self._of_runtime[row] for row in rows):
            return {**dict.fromkeys(("layer", "module", "op"), OF_RUNTIME), "also_holds": None}
        ops = dict.fromkeys(op for row in rows if (op := self._ops[row]))
        modules = dict.fromkeys(name for row in rows if (name := self._modules[row]))
        module, *rest = modules or [named(None)]
        return {
            "layer": self._nodes[rows[0]],
            "module": module,
            "op": "+".join(ops),
            "also_holds": "; ".join(rest) or None,
        }


def _texts(nodes: pd.DataFrame, column: str) -> list[str | None]:
    return nodes[column].astype(object).where(nodes[column].notna(), None).tolist()


def _fold(named: Sequence[_Names], layers: Sequence[Layer], by: str) -> list[Layer]:
    if by == "layer":
        return list(layers)
    merged: dict[Any, list[Layer]] = {}
    for layer in layers:
        merged.setdefault(_identity(named, layer)[by], []).append(layer)
    return [
        Layer(tuple(tuple(p for layer in same for p in layer.rows[s]) for s in range(len(named))))
        for same in merged.values()
    ]


def _identity(named: Sequence[_Names], layer: Layer) -> dict[str, Any]:
    """Returns the names of a layer, from its rows of the first side that has it."""
    has = [index for index, rows in enumerate(layer.rows) if rows]
    return {**named[has[0]].identity(layer.rows[has[0]]), "on": _letters(has)}


def _letters(has: Sequence[int]) -> str:
    return "".join(letter(index).upper() for index in has)
