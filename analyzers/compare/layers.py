"""The layers of a comparison: their table, their sum against whole runs, and what became slower.

Layers come from profiled runs, whole runs from runs without a profiler, in sessions of their own.
So their sum agrees with whole runs only if the profiler disturbs both sides alike, and the
difference lies in layers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from tracer.analyzers.compare import contrast
from tracer.analyzers.compare.alignment import Layer
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.grouping import OF_RUNTIME, named
from tracer.analyzers.views.text import plural
from tracer.errors import UsageError
from tracer.graph.operators import computes_in_integers
from tracer.support.measurements import t_quantile
from tracer.support.types import FloatArray
from tracer.text import brief

WORK = ("macs", "flops", "params", "bytes_read", "bytes_written")
GROUPINGS = ("layer", "module", "op")
_FIGURES = {
    "ratio": "ratio", "ratio_low": "low", "ratio_high": "high", "change_us": "change",
    "change_low_us": "change_low", "change_high_us": "change_high",
}  # fmt: skip
"""Columns of a side against the first, and the fields of their Contrast."""
_NAMED = 3
"""Layers that a note names."""

RowsOfTwo: TypeAlias = tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
"""The rows of each layer on the first side, and on another."""


def letter(side: int) -> str:
    """Returns the suffix of a side's columns: `a` for the first side."""
    return chr(ord("a") + side)


def layer_table(
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
    names = [_Names(side.nodes, depth) for side in sides]
    folded = list(layers)
    if by != "layer":
        merged: dict[Any, list[Layer]] = {}
        for layer in layers:
            merged.setdefault(_identity(names, layer)[by], []).append(layer)
        rows_of = [zip(*(one.rows for one in same), strict=True) for same in merged.values()]
        folded = [Layer(tuple(tuple(chain(*rows)) for rows in by_side)) for by_side in rows_of]
    identities = [_identity(names, layer) for layer in folded]
    fields = ("layer", "module", "op", "on", *(["also_holds"] if by == "module" else []))
    columns: dict[str, list[Any]] = {field: [i[field] for i in identities] for field in fields}
    for index, side in enumerate(sides):
        end = letter(index)
        rows = [layer.rows[index] for layer in folded]
        columns[f"nodes_{end}"] = [names[index].nodes(each) for each in rows]
        samples = side.times_of(rows)
        columns[f"time_us_{end}"] = [math.nan if s is None else s.mean for s in samples]
        columns |= {f"{name}_{end}": list(side.sums_of(name, rows)) for name in WORK}
    for index in range(1, len(sides)):
        end, compared = letter(index), contrasts(sides[0], sides[index], _rows(folded, index))
        adjusted = contrast.holm([each.p for each in compared])
        for name, figure in _FIGURES.items():
            columns[f"{name}_{end}"] = [getattr(each, figure) for each in compared]
        columns[f"p_{end}"] = adjusted
        # NaN is not significant
        columns[f"significant_{end}"] = [p < contrast.LEVEL for p in adjusted]
    comparison = pd.DataFrame(columns)
    changes = [f"change_us_{letter(index)}" for index in range(1, len(sides))]
    order = comparison[changes].abs().max(axis=1).sort_values(ascending=False, kind="stable")
    ordered = tuple(folded[int(position)] for position in order.index)
    return comparison.loc[order.index].reset_index(drop=True), ordered


def contrasts(first: Side, second: Side, rows: RowsOfTwo) -> list[contrast.Contrast]:
    """Compares each layer of two sides; a layer that one side alone has, with nothing."""
    pairs = list(zip(first.times_of(rows[0]), second.times_of(rows[1]), strict=True))
    if not _are_paired(first, second):
        return [_contrast(a, b, None) for a, b in pairs]
    logs = contrast.log_ratios(first.turns_of(rows[0]), second.turns_of(rows[1]))
    return [_contrast(a, b, column) for (a, b), column in zip(pairs, logs.T, strict=True)]


def _are_paired(first: Side, second: Side) -> bool:
    """Whether both sides took turns in the same sessions, and in more than one."""
    took_turns = first.turns_us is not None and second.turns_us is not None
    return took_turns and first.dof == second.dof > 0


def _contrast(
    first: contrast.Sample | None, second: contrast.Sample | None, logs: FloatArray | None
) -> contrast.Contrast:
    if first is None:
        return contrast.Contrast() if second is None else contrast.only_second(second)
    if second is None:
        return contrast.only_first(first)
    return (
        contrast.contrast(first, second) if logs is None else contrast.of_turns(logs, first, second)
    )


def _rows(layers: Sequence[Layer], index: int) -> RowsOfTwo:
    return [layer.rows[0] for layer in layers], [layer.rows[index] for layer in layers]


class _Names:
    """What the rows of a side are called, as lists: a look into a table takes a hundred times
    as long."""

    def __init__(self, nodes: pd.DataFrame, depth: int | None) -> None:
        columns = (nodes[name] for name in ("node", "op_type", "module"))
        self._nodes, self._ops, modules = (
            column.astype(object).where(column.notna(), None).tolist() for column in columns
        )
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


def _identity(names: Sequence[_Names], layer: Layer) -> dict[str, Any]:
    """Returns the names of a layer, from its rows of the first side that has it."""
    has = [index for index, rows in enumerate(layer.rows) if rows]
    on = "".join(letter(index).upper() for index in has)
    return {**names[has[0]].identity(layer.rows[has[0]]), "on": on}


@dataclass(frozen=True, slots=True)
class LayerSum:
    """The differences of a side from the first, as shares of a run of the first, with intervals.

    `layers` is the sum over all layers, and `whole` the difference of whole runs.
    """

    side: str
    layers: float
    layers_low: float
    layers_high: float
    whole: float
    whole_low: float
    whole_high: float

    @property
    def agrees(self) -> bool:
        """Whether both differ by no more than their intervals allow together."""
        allowed = math.hypot(
            (self.layers_high - self.layers_low) / 2, (self.whole_high - self.whole_low) / 2
        )
        return abs(self.layers - self.whole) <= allowed


def layer_sums(
    sides: Sequence[Side], layers: Sequence[Layer], totals: pd.DataFrame
) -> tuple[LayerSum, ...]:
    """Returns the sum for each side but the first that took turns with it in several sessions.

    None for sides on a card: their layers are kernels, and whole runs have the launches too.
    """
    sums = []
    for index, side in enumerate(sides[1:], 1):
        whole = totals.iloc[index]
        on_card = sides[0].run.is_on_device or side.run.is_on_device
        if on_card or not _are_paired(sides[0], side) or math.isnan(whole["ratio_low"]):
            continue
        shares, systematic = _changes(sides[0], side, _rows(layers, index))
        error = math.hypot(float(shares.std(ddof=1)) / math.sqrt(len(shares)), systematic)
        mean, half = float(shares.mean()), t_quantile(contrast.LEVEL, len(shares) - 1) * error
        ends = (float(whole[end]) - 1 for end in ("ratio", "ratio_low", "ratio_high"))
        sums.append(LayerSum(side.label, mean, mean - half, mean + half, *ends))
    return tuple(sums)


def _changes(first: Side, second: Side, rows: RowsOfTwo) -> tuple[FloatArray, float]:
    """Returns the sum of the changes of all layers in each session, as a share of a run of `first`,
    and the standard deviation of the overheads' differences, as such a share.

    The speed of the machine in a session is in the changes and in the run, and leaves the share.
    An overhead that is the same on both sides is in no change.
    """
    before, after = first.levels_of(rows[0]), second.levels_of(rows[1])
    logs = contrast.log_ratios(first.turns_of(rows[0]), second.turns_of(rows[1]))
    added, variance = list[float](), 0.0
    samples = zip(first.times_of(rows[0]), second.times_of(rows[1]), strict=True)
    for (a, b), *levels in zip(samples, before.mean(axis=0), after.mean(axis=0), strict=True):
        beyond = [0.0 if s is None else x - s.mean for s, x in zip((a, b), levels, strict=True)]
        if a is not None and b is not None:
            added.append(0.0 if contrast.is_shared(a, b) else beyond[1] - beyond[0])
            variance += contrast.misfit_of(a, b) ** 2
        else:
            added.append(beyond[1] - beyond[0])
            variance += sum(each.misfit**2 for each in (a, b) if each is not None)
    both = np.isfinite(logs)
    changes = np.where(
        both,
        np.nan_to_num(before) * np.expm1(np.where(both, logs, 0.0)),
        np.nan_to_num(after) - np.nan_to_num(before),
    )
    shares: FloatArray = (changes - np.array(added)).sum(axis=1) / first.run.wall_us
    return shares, math.sqrt(variance) / float(first.run.wall_us.mean())


def slower_quantized_notes(
    sides: Sequence[Side], table: pd.DataFrame, layers: Sequence[Layer]
) -> Iterator[str]:
    """Yields a note for each side with layers that are significantly slower than A's in floats.

    They compute in quantised integers. `table` has a row for each of `layers`.
    """
    in_integers = []
    for place, side in enumerate(sides):
        kernels = {k.name for k in side.run.kernels if computes_in_integers(k.op_type)}
        nodes = side.nodes
        is_integer = nodes["kernels"].isin(kernels) | nodes["op_type"].map(computes_in_integers)
        in_integers.append([bool(is_integer.iloc[list(one.rows[place])].any()) for one in layers])
    for index, side in enumerate(sides[1:], 1):
        end = letter(index)
        slower = table[f"significant_{end}"] & (table[f"ratio_{end}"] > 1)
        rows = table[slower & pd.Series(in_integers[index]) & ~pd.Series(in_integers[0])]
        if rows.empty:
            continue
        rows = rows.sort_values(f"change_us_{end}", ascending=False)
        first = rows.head(_NAMED)
        names = ", ".join(
            f"{brief(str(layer))} ({before:.3g} to {after:.3g} µs)"
            for layer, before, after in zip(
                first["layer"], first["time_us_a"], first[f"time_us_{end}"], strict=True
            )
        )
        verbs = ("computes", "is") if len(rows) == 1 else ("compute", "are")
        lost = float(rows[f"change_us_{end}"].sum())
        yield (
            f"{plural(len(rows), 'layer')} of {side.label} {verbs[0]} in 8 bits and {verbs[1]} "
            f"slower than in floats, by {lost:.3g} µs: {names}"
            f"{', …' if len(rows) > _NAMED else ''}; tracer quantize --exclude leaves them in "
            "floats"
        )
