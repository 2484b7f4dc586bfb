"""The table of layers: each side's time and work, the ratios, and which differences are real."""

from __future__ import annotations

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
    """`a` for the first side: the ending of its columns."""
    return chr(ord("a") + side)


def table(
    sides: Sequence[Side], layers: Sequence[Layer], by: str, depth: int | None = None
) -> pd.DataFrame:
    """A row for each layer, or what `by` folds layers into; the largest change in time first.

    Columns: `layer` (the first node of the first side that has it), `module`, `op`, `on` (letters
    of the sides that have it); `also_holds` (by module: other modules that a row has nodes of, as
    where a runtime fused across them); for each side `nodes_a` (joined by "; "), `time_us_a` and
    the work `macs_a` …; for each side but the first `ratio_b` to the first, its interval
    `ratio_low_b` and `ratio_high_b`, `change_us_b`, `p_b` (adjusted by Holm over the layers) and
    `significant_b`. Modules below `depth` are in the row of the one they are in.
    """
    if by not in GROUPINGS:
        raise UsageError(f"cannot compare by '{by}'", f"Compare by {', '.join(GROUPINGS)}, model.")
    folded = _fold(sides, layers, by, depth)
    identities = [_identity(sides, layer, depth) for layer in folded]
    names = ("layer", "module", "op", "on", *(["also_holds"] if by == "module" else []))
    columns: dict[str, list[Any]] = {name: [each[name] for each in identities] for name in names}
    for index, side in enumerate(sides):
        end = letter(index)
        places = [layer.places[index] for layer in folded]
        columns[f"nodes_{end}"] = ["; ".join(side.nodes["node"].iloc[list(p)]) for p in places]
        samples = [side.time_of(p) for p in places]
        columns[f"time_us_{end}"] = [math.nan if s is None else s.mean for s in samples]
        for name in WORK:
            columns[f"{name}_{end}"] = [side.sum_of(name, p) for p in places]
    for index in range(1, len(sides)):
        columns |= _contrasts(sides[0], sides[index], folded, index)
    found = pd.DataFrame(columns)
    changes = [f"change_us_{letter(index)}" for index in range(1, len(sides))]
    order = found[changes].abs().max(axis=1).sort_values(ascending=False, kind="stable")
    return found.loc[order.index].reset_index(drop=True)


def _contrasts(
    first: Side, second: Side, layers: Sequence[Layer], index: int
) -> dict[str, list[Any]]:
    end = letter(index)
    found: dict[str, list[Any]] = {
        f"{name}_{end}": [] for name in ("ratio", "ratio_low", "ratio_high", "change_us", "p")
    }
    for layer in layers:
        a, b = first.time_of(layer.places[0]), second.time_of(layer.places[index])
        known = a is not None and b is not None
        seen = contrast(a, b) if a is not None and b is not None else None
        figures = (seen.ratio, seen.low, seen.high) if seen else (math.nan,) * 3
        change = (b.mean if b else 0.0) - (a.mean if a else 0.0) if a or b else math.nan
        p = seen.p if seen and known else math.nan
        for column, value in zip(found.values(), (*figures, change, p), strict=True):
            column.append(value)
    found[f"p_{end}"] = holm(found[f"p_{end}"])
    found[f"significant_{end}"] = [p < LEVEL for p in found[f"p_{end}"]]  # NaN is not
    return found


def _fold(
    sides: Sequence[Side], layers: Sequence[Layer], by: str, depth: int | None
) -> list[Layer]:
    """Layers with the same module or operator as one."""
    if by == "layer":
        return list(layers)
    merged: dict[Any, list[Layer]] = {}
    for layer in layers:
        merged.setdefault(_identity(sides, layer, depth)[by], []).append(layer)
    return [
        Layer(tuple(tuple(p for one in same for p in one.places[s]) for s in range(len(sides))))
        for same in merged.values()
    ]


def _identity(sides: Sequence[Side], layer: Layer, depth: int | None) -> dict[str, Any]:
    """What a layer is called: by its rows of the first side that has it."""
    has = [index for index, places in enumerate(layer.places) if places]
    nodes = sides[has[0]].nodes.iloc[list(layer.places[has[0]])]
    if nodes["index"].isna().all():
        own = dict.fromkeys(("layer", "module", "op"), OF_RUNTIME)
        return own | {"on": _letters(has), "also_holds": None}
    known = nodes["module"].dropna()
    module, *others = dict.fromkeys(named(name, depth=depth) for name in known) or [named(None)]
    return {
        "layer": nodes["node"].iloc[0],
        "module": module,
        "op": "+".join(dict.fromkeys(nodes["op_type"].dropna())),
        "on": _letters(has),
        "also_holds": "; ".join(others) or None,
    }


def _letters(has: Sequence[int]) -> str:
    return "".join(letter(index).upper() for index in has)
