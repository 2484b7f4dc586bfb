"""The view of a Comparison: whole models, then layers, then numbers."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.compare.totals import Outcome
from tracer.analyzers.compare.views import charts
from tracer.analyzers.compare.views.comparison.cells import INTERVAL, interval, ratio
from tracer.analyzers.compare.views.comparison.document import document
from tracer.analyzers.compare.views.comparison.layers import layers_table
from tracer.analyzers.compare.views.comparison.subgraphs import subgraph_tables
from tracer.analyzers.compare.views.numbers import numbers_table, values_check
from tracer.analyzers.compare.views.report import of_comparison
from tracer.analyzers.compare.views.scores import scores_table
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.checks import Check, Fault
from tracer.analyzers.views.page import (
    Column,
    Page,
    Table,
    name_column,
    number_column,
    signed_percent,
    times,
)
from tracer.analyzers.views.report.content import Content
from tracer.analyzers.views.text import count, micros, percent, si
from tracer.records.trace import INCOMPLETE

__all__ = ["checks", "document", "figure", "page", "report", "table"]

_FAULTS: Mapping[Outcome, Fault] = {"pass": "", "FAIL": "failure", "undecided": "error"}


def page(result: Comparison, options: ViewOptions) -> Page:
    """The totals of the sides, their scores, then the layers, then the numbers."""
    tables = [_totals(result)]
    if result.scores:
        tables.append(scores_table(result.scores))
    if result.layers is not None:
        tables.append(layers_table(result, result.layers))
        tables += subgraph_tables(result)
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
        Column("÷ A", "ratio", ratio(), 3),
        Column(INTERVAL, "ratio_low", interval(), 4),
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
            yield f"{who}: no significant difference from A ({INTERVAL} {span})"
