"""The table of layers: time and work of each side, ratios, and significant differences."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analyzers.compare.alignment import Layer
from analyzers.compare.contrast import LEVEL, Sample, contrast, holm
from analyzers.compare.sides import Side
from analyzers.grouping import OF_RUNTIME, named
from tracer.errors import UsageError

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
    `ratio_high_b`, `change_us_b`, `p_b` (adjusted by Holm over the layers) and `significant_b`.
    Modules below `depth` count for their parent.
    """
    if by not in GROUPINGS:
        raise UsageError(f"cannot compare by '{by}'", f"Compare by {', '.join(GROUPINGS)}, model.")
    named = [_Names(side.nodes, depth) for side in sides]
    folded = _fold(named, layers, by)
    identities = [_identity(named, layer) for layer in folded]
    names = ("layer", "module", "op", "on", *(["also_holds"] if by == "module" else []))
    columns: dict[str, list[Any]] = {name: [each[name] for each in identities] for name in names}
    samples: list[Sequence[Sample | None]] = []
    for index, side in enumerate(sides):
        end = letter(index)
        rows = [layer.rows[index] for layer in folded]
        columns[f"nodes_{end}"] = [named[index].nodes(each) for each in rows]
        samples.append(side.times_of(rows))
        columns[f"time_us_{end}"] = [math.nan if s is None else s.mean for s in samples[index]]
        columns |= {f"{name}_{end}": list(side.sums_of(name, rows)) for name in WORK}
    for index in range(1, len(sides)):
        columns |= _contrasts(samples[0], samples[index], letter(index))
    comparison = pd.DataFrame(columns)
    changes = [f"change_us_{letter(index)}" for index in range(1, len(sides))]
    order = comparison[changes].abs().max(axis=1).sort_values(ascending=False, kind="stable")
    ordered = tuple(folded[int(position)] for position in order.index)
    return comparison.loc[order.index].reset_index(drop=True), ordered


def _contrasts(
    first: Sequence[Sample | None], second: Sequence[Sample | None], end: str
) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        f"{name}_{end}": [] for name in ("ratio", "ratio_low", "ratio_high", "change_us", "p")
    }
    for a, b in zip(first, second, strict=True):
        tested = contrast(a, b) if a is not None and b is not None else None
        figures = (tested.ratio, tested.low, tested.high) if tested else (math.nan,) * 3
        change = (b.mean if b else 0.0) - (a.mean if a else 0.0) if a or b else math.nan
        p = tested.p if tested else math.nan
        for column, value in zip(columns.values(), (*figures, change, p), strict=True):
            column.append(value)
    columns[f"p_{end}"] = holm(columns[f"p_{end}"])
    columns[f"significant_{end}"] = [
        p < LEVEL for p in columns[f"p_{end}"]
    ]  # NaN is not significant
    return columns


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
