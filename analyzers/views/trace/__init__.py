"""The view of a Trace: its page, table, document, charts and file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from analyzers.advice import advise
from analyzers.grouping import remark
from analyzers.options import NAMES, SAMPLE, ViewOptions, sort_column
from analyzers.views.page import Column, Page, Table, specified
from analyzers.views.text import full, si
from analyzers.views.trace import bars, headline, histograms, overflow
from analyzers.views.trace.document import document
from analyzers.views.trace.roofline import figure as roofline
from analyzers.views.trace.sections import Section, chosen, folded, ordered, sections, table
from tracer.records.columns import SPECS, TableName
from tracer.records.trace import Trace
from tracer.storage import trace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["document", "figure", "page", "roofline", "stored", "table"]


def page(trace: Trace, options: ViewOptions) -> Page:
    """The tables of all runs, then what to know about them."""
    tables = [each for section in sections(trace) for each in _tables(trace, section, options)]
    return Page(tuple(tables), trace.notes, trace.environment.summary)


def figure(trace: Trace, options: ViewOptions) -> Figure:
    """The histograms of partial sums if accumulators were narrow, else the time of each layer."""
    if any(run.sums for run in trace.runs):
        return histograms.figure(trace, options)
    return bars.figure(trace, options)


def stored(trace: Trace, options: ViewOptions) -> bytes:
    """The trace as an SQLite file."""
    return trace_file.dumps(trace)


def _tables(trace: Trace, section: Section, options: ViewOptions) -> Iterator[Table]:
    title = headline.headline(trace, section)
    groups, named = folded(section, options), NAMES[options.by]
    if options.by == SAMPLE:
        yield _of_samples(title, section, groups, options)
        return
    if section.run is not None and overflow.has_overflow(section.nodes):
        yield Table(
            title,
            _columns("overflow", named, options),
            chosen(overflow.worst_first(groups, options.full_numbers), options),
            head=overflow.words(section.nodes),
            lines=(overflow.totals(section.nodes, options.full_numbers),),
            is_long=True,
        )
        title = ""
    rows = ordered(groups, options)
    yield Table(
        title,
        _columns("work", named, options),
        rows,
        head=headline.verdict(section.run, section.nodes) if section.run else (),
        lines=tuple(_lines(trace, section, rows, options)),
        is_long=True,
        advice=tuple(advice.text for advice in advise(trace, section.run, section.nodes)),
        weight=("time_share", "time") if groups["time_us"].notna().any() else ("macs", "MACs"),
    )


def _of_samples(title: str, section: Section, samples: pd.DataFrame, options: ViewOptions) -> Table:
    return Table(
        title,
        _columns("overflow", SAMPLE, options),
        chosen(overflow.worst_first(samples, options.full_numbers), options),
        head=(overflow.of_samples(samples),),
        lines=(overflow.totals(section.nodes, options.full_numbers),),
        is_long=True,
        weight=("overflow_outputs", "overflows"),
    )


def _lines(
    trace: Trace, section: Section, groups: pd.DataFrame, options: ViewOptions
) -> Iterator[str]:
    if options.sort is not None and not _has_values(groups, options):
        yield f"no row has a value of {options.sort}, so the rows are in their usual order"
    others = remark(groups, options.by)
    if others:
        yield others
    text = full if options.full_numbers else si
    yield headline.totals(trace, section.nodes, text)
    yield from headline.energy(trace, section.nodes)
    yield from headline.memory(section, text)
    threads = section.run.threads if section.run else None
    yield from headline.roofs(trace.environment.peaks_at(threads))


def _columns(which: TableName, named: str, options: ViewOptions) -> list[Column]:
    """Returns the columns of one table; the column that names the rows gets room first."""
    columns = [
        specified(spec, options.full_numbers)
        for spec in SPECS
        if spec.header is not None and spec.table in (which, None)
    ]
    return [replace(column, rank=0) if column.field == named else column for column in columns]


def _has_values(rows: pd.DataFrame, options: ViewOptions) -> bool:
    name = sort_column(options.sort or "", options.by).name
    return name in rows and bool(rows[name].notna().any())
