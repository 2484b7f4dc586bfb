"""The table of layers: time and work of each side, ratios, and significant differences."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analyzers.compare.alignment import Layer
from analyzers.compare.contrast import LEVEL, contrast, holm
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
    folded = _fold(sides, layers, by, depth)
    identities = [_identity(sides, layer, depth) for layer in folded]
    names = ("layer", "module", "op", "on", *(["also_holds"] if by == "module" else []))
    columns: dict[str, list[Any]] = {name: [each[name] for each in identities] for name in names}
    for index, side in enumerate(sides):
        end = letter(index)
        rows = [layer.rows[index] for layer in folded]
        columns[f"nodes_{end}"] = ["; ".join(side.nodes["node"].iloc[list(p)]) for p in rows]
        samples = [side.time_of(p) for p in rows]
        columns[f"time_us_{end}"] = [math.nan if s is None else s.mean for s in samples]
        for name in WORK:
            columns[f"{name}_{end}"] = [side.sum_of(name, p) for p in rows]
    for index in range(1, len(sides)):
        columns |= _contrasts(sides[0], sides[index], folded, index)
    comparison = pd.DataFrame(columns)
    changes = [f"change_us_{letter(index)}" for index in range(1, len(sides))]
    order = comparison[changes].abs().max(axis=1).sort_values(ascending=False, kind="stable")
    ordered = tuple(folded[int(position)] for position in order.index)
    return comparison.loc[order.index].reset_index(drop=True), ordered


def _contrasts(
    first: Side, second: Side, layers: Sequence[Layer], index: int
) -> dict[str, list[Any]]:
    end = letter(index)
    columns: dict[str, list[Any]] = {
        f"{name}_{end}": [] for name in ("ratio", "ratio_low", "ratio_high", "change_us", "p")
    }
    for layer in layers:
        a, b = first.time_of(layer.rows[0]), second.time_of(layer.rows[index])
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


def _fold(
    sides: Sequence[Side], layers: Sequence[Layer], by: str, depth: int | None
) -> list[Layer]:
    if by == "layer":
        return list(layers)
    merged: dict[Any, list[Layer]] = {}
    for layer in layers:
        merged.setdefault(_identity(sides, layer, depth)[by], []).append(layer)
    return [
        Layer(tuple(tuple(p for layer in same for p in layer.rows[s]) for s in range(len(sides))))
        for same in merged.values()
    ]


def _identity(sides: Sequence[Side], layer: Layer, depth: int | None) -> dict[str, Any]:
    """Returns the names of a layer, from its rows of the first side that has it."""
    has = [index for index, rows in enumerate(layer.rows) if rows]
    nodes = sides[has[0]].nodes.iloc[list(layer.rows[has[0]])]
    if nodes["index"].isna().all():
        names = dict.fromkeys(("layer", "module", "op"), OF_RUNTIME)
        return names | {"on": _letters(has), "also_holds": None}
    modules = nodes["module"].dropna()
    module, *rest = dict.fromkeys(named(name, depth=depth) for name in modules) or [named(None)]
    return {
        "layer": nodes["node"].iloc[0],
        "module": module,
        "op": "+".join(dict.fromkeys(nodes["op_type"].dropna())),
        "on": _letters(has),
        "also_holds": "; ".join(rest) or None,
    }


def _letters(has: Sequence[int]) -> str:
    return "".join(letter(index).upper() for index in has)
