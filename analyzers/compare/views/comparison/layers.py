"""The table of layers of a Comparison, and the lines below it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.contrast import LEVEL
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.compare.views.charts import MARK
from tracer.analyzers.compare.views.comparison.cells import (
    INTERVAL,
    change_interval,
    interval,
    ratio,
    signed,
)
from tracer.analyzers.views.page import Column, Table, name_column, number_column, signed_percent
from tracer.analyzers.views.text import micros, plural, si
from tracer.text import printable

_NAMES = {
    "layer": (("layer", 0), ("module", 6), ("op", 5)),
    "module": (("module", 0), ("op", 30), ("also_holds", 31)),
    "op": (("op", 0),),
}  # fmt: skip
"""The columns that name the rows, and their ranks, by grouping."""

_LISTED = 10

_WORK = (("MACs", "macs"), ("parameters", "params"))


def layers_table(result: Comparison, rows: pd.DataFrame) -> Table:
    """Returns the rows with their times on all sides, and what is found in lines below them."""
    columns: list[Column] = [
        name_column(field.replace("_", " "), field, rank) for field, rank in _NAMES[result.by]
    ]
    ends = [letter(index) for index in range(len(result.sides))]
    columns += [
        number_column(f"{e.upper()} µs", f"time_us_{e}", micros, 1 + n) for n, e in enumerate(ends)
    ]
    others = ends[1:]
    for position, end in enumerate(others):
        header = f"{end.upper()} ÷ A"
        columns.append(Column(header, f"change_us_{end}", ratio(f"_{end}"), 100 + 2 * position))
    if len(ends) == 2:
        columns.append(Column(INTERVAL, "ratio_low_b", interval("_b"), 104))
        columns.append(number_column("Δ µs", "change_us_b", signed, 103))
        columns.append(Column("Δ interval", "change_low_us_b", change_interval("_b"), 105))
    columns += [
        number_column(f"{what} {e.upper()}", f"{field}_{e}", si, 120 + position)
        for position, (what, field) in enumerate(_WORK)
        for e in _telling(rows, field, ends)
    ]
    # A terminal counts ranks from 0: names and times come first, then ratios, then the rest.
    headers = [column.header for column in sorted(columns, key=lambda column: column.rank)]
    shown = [replace(column, rank=headers.index(column.header)) for column in columns]
    title = f"By {result.by}, the largest change in time first"
    return Table(title, shown, rows, tuple(_layer_lines(result, rows)), is_long=True)


def _telling(rows: pd.DataFrame, field: str, ends: Sequence[str]) -> Sequence[str]:
    """Returns the sides whose work is shown: only the first if the work of all is equal."""
    first = rows[f"{field}_{ends[0]}"]
    same = all(first.fillna(0).eq(rows[f"{field}_{end}"].fillna(0)).all() for end in ends[1:])
    return ends[:1] if same else ends


def _layer_lines(result: Comparison, rows: pd.DataFrame) -> Iterator[str]:
    everyone = "".join(letter(index).upper() for index in range(len(result.sides)))
    for end in (letter(index) for index in range(1, len(result.sides))):
        tested = int(rows[f"p_{end}"].notna().sum())
        significant = int(rows[f"significant_{end}"].sum())
        yield (
            f"{end.upper()}: {significant} of {plural(tested, 'row')} differ significantly from A "
            f"({MARK}; Holm, {LEVEL:.0%} over all rows)"
        )
    yield from _sums(result)
    alone = rows[rows["on"] != everyone]
    for on, group in alone.groupby("on", sort=False):
        ends = list(str(on).lower())
        cells = [_alone(row, result.by, ends) for row in group.to_dict("records")]
        yield f"only in {on}: {_listed(cells)}"
    common = rows[rows["on"] == everyone]
    for what, field in _WORK:
        cells = [
            f"{printable(row[result.by])} {' and '.join(amounts)}"
            for row in _unequal(common, field, everyone).to_dict("records")
            if len(set(amounts := _amounts(row, field, everyone))) > 1 and "" not in amounts
        ]
        if cells:
            yield f"{what} differ: {_listed(cells)}"


def _sums(result: Comparison) -> Iterator[str]:
    """Yields for each side whether its layers differ by as much as its whole runs do."""
    letters = {side.label: letter(index).upper() for index, side in enumerate(result.sides)}
    for each in result.sums:
        layers = _share(each.layers, each.layers_low, each.layers_high)
        whole = _share(each.whole, each.whole_low, each.whole_high)
        both = (
            f"{letters[each.side]}: all layers together {layers} of a run of A, whole runs {whole}"
        )
        if each.agrees:
            yield f"{both}: they agree"
        else:
            yield (
                f"{both}: they do not agree. {signed_percent(each.whole - each.layers)} is in "
                "no layer: outside the nodes, or an effect of the profiler"
            )


def _share(share: float, low: float, high: float) -> str:
    return f"{signed_percent(share)} ({signed_percent(low)} to {signed_percent(high)})"


def _unequal(rows: pd.DataFrame, field: str, on: str) -> pd.DataFrame:
    """Returns the rows in which not all sides have the same of a field."""
    first, *others = (rows[f"{field}_{end}"] for end in on.lower())
    return rows[np.logical_or.reduce([(other != first).to_numpy(bool) for other in others])]


def _amounts(row: Mapping[Any, Any], field: str, on: str) -> list[str]:
    values = [row[f"{field}_{end}"] for end in on.lower()]
    return ["" if value is None or value != value else f"{value:,.0f}" for value in values]


def _alone(row: Mapping[Any, Any], by: str, ends: Sequence[str]) -> str:
    times_us = [row[f"time_us_{end}"] for end in ends]
    times_text = ", ".join(f"{micros(time)} µs" for time in times_us if not math.isnan(time))
    text = printable(row[by])
    if by == "layer" and row["op"] != row["layer"]:
        text += f" ({printable(row['op'])})"
    return f"{text} {times_text}" if times_text else text


def _listed(cells: Sequence[str]) -> str:
    more = len(cells) - _LISTED
    shown = "; ".join(cells[:_LISTED])
    return f"{shown}; and {more:,} more" if more > 0 else shown
