"""The view of a Comparison: whole models, then layers, then numbers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analyzers.compare import Comparison
from analyzers.compare.contrast import LEVEL
from analyzers.compare.gates import Outcome
from analyzers.compare.layers import letter
from analyzers.compare.sides import Side
from analyzers.compare.views import charts
from analyzers.compare.views.charts import MARK
from analyzers.compare.views.numbers import numbers_table, values_check
from analyzers.compare.views.report import of_comparison
from analyzers.options import ViewOptions
from analyzers.views.checks import Check, Fault
from analyzers.views.file_formats.json import records
from analyzers.views.page import (
    Column,
    Page,
    Table,
    name_column,
    number_column,
    signed_percent,
    times,
)
from analyzers.views.report.content import Content
from analyzers.views.text import count, micros, percent, plural, si
from tracer.records.trace import INCOMPLETE
from tracer.text import printable

_NAMES = {
    "layer": (("layer", 0), ("module", 6), ("op", 5)),
    "module": (("module", 0), ("op", 30), ("also_holds", 31)),
    "op": (("op", 0),),
}  # fmt: skip
"""The columns that name the rows, and their ranks, by grouping."""

_FAULTS: Mapping[Outcome, Fault] = {"pass": "", "FAIL": "failure", "undecided": "error"}
_LISTED = 10

_INTERVAL = f"{1 - LEVEL:.0%} interval"
_WORK = (("MACs", "macs"), ("parameters", "params"))


def page(result: Comparison, options: ViewOptions) -> Page:
    """The totals of the sides, then the layers, then the numbers."""
    tables = [_totals(result)]
    if result.layers is not None:
        tables.append(_layers(result, result.layers))
    tables += [numbers_table(numbers, options) for numbers in result.numbers]
    summary = result.sides[0].trace.environment.summary
    notes = (*result.notes, *_side_notes(result))
    first = sorted(notes, key=lambda note: not note.startswith(INCOMPLETE))
    return Page(tuple(tables), tuple(first), summary)


def table(result: Comparison, options: ViewOptions) -> pd.DataFrame:
    """The layers, or the totals if only totals were compared."""
    rows = result.totals if result.layers is None else result.layers
    return rows.head(options.top) if options.top else rows


def figure(result: Comparison, options: ViewOptions) -> Any:
    """The time of each layer on every side, or the total time of each side."""
    return charts.comparison(result, options.top)


def document(result: Comparison, options: ViewOptions) -> dict[str, Any]:
    """All tables, and the sides with their models and rounds."""
    return {
        "by": result.by,
        "level": LEVEL,
        "sides": [_side(side, letter(index)) for index, side in enumerate(result.sides)],
        "totals": records(result.totals),
        "layers": None if result.layers is None else records(table(result, options)),
        "numbers": [
            {
                "first": numbers.first,
                "second": numbers.second,
                "rtol": numbers.tolerance.relative,
                "atol": numbers.tolerance.absolute,
                "no_verdict": numbers.no_verdict,
                "is_isolated": numbers.is_isolated,
                "first_divergence": numbers.first_divergence,
                "outputs": records(numbers.outputs),
                "layers": records(numbers.layers),
                "notes": numbers.notes,
            }
            for numbers in result.numbers
        ],
        "verdicts": [
            {"side": each.side, "gate": each.gate, "outcome": each.outcome, "line": each.line}
            for each in result.verdicts
        ],
        "notes": result.notes,
    }


def checks(result: Comparison, options: ViewOptions) -> list[Check]:
    """A test for each gate and side, and for the values of each side.

    Without a gate, the time of a side is a test that passes.
    """
    lines = list(_verdicts(result))
    names = [str(side) for side in result.totals["side"]]
    speed = [Check("time", name, text) for name, text in zip(names[1:], lines, strict=True)]
    if result.verdicts:
        speed = [
            Check("time", f"{each.side} {each.gate}", each.line, _FAULTS[each.outcome])
            for each in result.verdicts
        ]
    return [*speed, *map(values_check, result.numbers)]


def report(result: Comparison, options: ViewOptions) -> Content:
    """The sides as runs, with the ratio of each layer's times."""
    lines = (*(verdict.line for verdict in result.verdicts), *_verdicts(result))
    return of_comparison(result, page(result, options), lines)


def _side(side: Side, letter: str) -> dict[str, Any]:
    rounds = side.wall.rounds
    return {
        "letter": letter,
        "label": side.label,
        "executor": side.run.executor,
        "batch": side.run.batch,
        "model": side.trace.model,
        "environment": side.trace.environment,
        "settings": side.trace.settings,
        "rounds_us": None if rounds is None else rounds.tolist(),
        "notes": side.notes,
    }


def _side_notes(result: Comparison) -> Iterator[str]:
    """Yields a note of all sides once, and other notes with the labels of their sides."""
    labels_of: dict[str, list[str]] = {}
    for side in result.sides:
        for note in side.notes:
            labels_of.setdefault(note, []).append(side.label)
    for note, labels in labels_of.items():
        yield note if len(labels) == len(result.sides) else f"{', '.join(labels)}: {note}"


def _totals(result: Comparison) -> Table:
    rows = result.totals.assign(
        letter=[letter(index).upper() for index in range(len(result.sides))],
        speed=1 / result.totals["ratio"],
    )
    columns = (
        name_column("", "letter", 0),
        name_column("side", "side", 1),
        number_column("time µs", "time_us", micros, 2),
        number_column("std err", "error_us", micros, 8),
        Column("÷ A", "ratio", _marked("ratio", "significant"), 3),
        Column(_INTERVAL, "ratio_low", _interval(""), 4),
        number_column("speed", "speed", times, 9),
        number_column("conv", "convolution_share", percent, 5),
        number_column("backward", "backward_share", percent, 6),
        number_column("MACs", "macs", si, 7),
        number_column("params", "params", si, 10),
        number_column("bytes", "bytes", si, 12),
        number_column("flop/s", "flops_per_s", si, 11),
        number_column("batch", "batch", count, 13),
        name_column("executor", "executor", 14),
    )
    lines = (*_verdicts(result), *_parameters(result))
    head = tuple(verdict.line for verdict in result.verdicts)
    return Table("Whole runs, without profiler", columns, rows, lines, head=head)


def _parameters(result: Comparison) -> Iterator[str]:
    """Yields a line if sides that should be one network have different numbers of parameters."""
    counts = result.totals["params"].dropna()
    if result.layers is None or counts.nunique() < 2:
        return
    listed = ", ".join(
        f"{letter(side).upper()} {row['params']:,}"
        for side, row in enumerate(result.totals.to_dict("records"))
        if not pd.isna(row["params"])
    )
    yield f"parameters differ: {listed}; other networks, or some are folded or not used"


def _verdicts(result: Comparison) -> Iterator[str]:
    records = result.totals.to_dict("records")
    for index, row in enumerate(records[1:], 1):
        who = f"{letter(index).upper()} ({row['side']})"
        if math.isnan(row["ratio_low"]):
            yield f"{who}: too few or too uneven runs for a confidence interval"
            continue
        low, high = (signed_percent(row[end] - 1) for end in ("ratio_low", "ratio_high"))
        span = f"{low} to {high}"
        if row["significant"]:
            slower = row["ratio"] > 1
            factor, way = (row["ratio"], "slower") if slower else (1 / row["ratio"], "faster")
            yield f"{who} is {times(factor)} times {way} than A: {span} of time"
        else:
            yield f"{who}: no significant difference from A ({_INTERVAL} {span})"


def _layers(result: Comparison, rows: pd.DataFrame) -> Table:
    columns: list[Column] = [
        name_column(field.replace("_", " "), field, rank) for field, rank in _NAMES[result.by]
    ]
    ends = [letter(index) for index in range(len(result.sides))]
    columns += [
        number_column(f"{e.upper()} µs", f"time_us_{e}", micros, 1 + n) for n, e in enumerate(ends)
    ]
    others = ends[1:]
    for position, end in enumerate(others):
        ratio = _marked(f"ratio_{end}", f"significant_{end}")
        columns.append(Column(f"{end.upper()} ÷ A", f"ratio_{end}", ratio, 100 + 2 * position))
    if len(ends) == 2:
        columns.append(Column(_INTERVAL, "ratio_low_b", _interval("_b"), 104))
        columns.append(number_column("Δ µs", "change_us_b", _signed, 103))
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


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{micros(abs(value))}"


def _marked(ratio: str, significant: str) -> Any:
    def text(row: Any) -> str:
        shown = times(float(row[ratio]))
        return f"{shown}{MARK if row[significant] else ' '}" if shown else ""

    return text


def _interval(end: str) -> Any:
    def text(row: Any) -> str:
        low, high = float(row[f"ratio_low{end}"]), float(row[f"ratio_high{end}"])
        return "" if math.isnan(low) else f"{times(low)} to {times(high)}"

    return text
