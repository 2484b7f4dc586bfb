"""The view of a Trace: its page, table, document, charts and file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from analyzers.advice import advise
from analyzers.grouping import NAMES, remark
from analyzers.options import ViewOptions
from analyzers.views.page import Column, Page, Table, specified
from analyzers.views.trace import bars, headline, histograms, overflow
from analyzers.views.trace.document import document
from analyzers.views.trace.histograms import figure as sums
from analyzers.views.trace.roofline import figure as roofline
from analyzers.views.trace.sections import Section, folded, largest_first, sections, table
from tracer.records.columns import JOINT, TableName, specs_of
from tracer.records.trace import Trace
from tracer.storage import trace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["document", "figure", "page", "roofline", "stored", "sums", "table"]


def page(trace: Trace, options: ViewOptions) -> Page:
    """The tables of all runs, then what to know about them."""
    tables = [each for section in sections(trace) for each in _tables(trace, section, options)]
    return Page(tuple(tables), trace.notes, trace.environment.summary)


def figure(trace: Trace, options: ViewOptions) -> Figure:
    """The time of each layer; if the times are of emulated accumulators, their histograms."""
    if all(section.run is not None and section.run.sums for section in sections(trace)):
        return histograms.figure(trace, options)
    return bars.figure(trace, options)


def stored(trace: Trace, options: ViewOptions) -> bytes:
    """The trace as an SQLite file."""
    return trace_file.dumps(trace)


def _tables(trace: Trace, section: Section, options: ViewOptions) -> Iterator[Table]:
    title = headline.headline(trace, section)
    groups, named = folded(section, options), NAMES[options.by]
    counted = overflow.has_overflow(section.nodes)
    if counted and section.run is not None and section.run.sums:  # its times are of an emulation
        yield Table(
            title,
            _columns(groups, ("overflow",), named),
            overflow.worst_first(groups),
            head=overflow.words(section.nodes),
            lines=(overflow.totals(section.nodes),),
            is_long=True,
        )
        title, counted = "", False
    head = headline.verdict(section.run, section.nodes) if section.run else ()
    head = (*head, *headline.others(trace, section))
    lines = tuple(_lines(trace, section, groups, options))
    if counted:
        head = (*head, *overflow.counted(trace), *overflow.words(section.nodes))
        lines = (*lines, overflow.totals(section.nodes))
        groups = overflow.described(groups)
    yield Table(
        title,
        _columns(groups, ("work", "overflow") if counted else ("work",), named),
        _displayed(groups),
        head=head,
        lines=lines,
        is_long=True,
        advice=tuple(advice.text for advice in advise(trace, section.run, section.nodes)),
        weight=("time_share", "time") if groups["time_us"].notna().any() else ("macs", "MACs"),
    )


def _lines(
    trace: Trace, section: Section, groups: pd.DataFrame, options: ViewOptions
) -> Iterator[str]:
    others = remark(groups, options.by)
    if others:
        yield others
    yield headline.totals(trace, section.nodes)
    yield from headline.memory(section)
    yield from headline.roofs(trace.environment.peaks)


def _columns(rows: pd.DataFrame, which: Sequence[TableName], named: str) -> list[Column]:
    """Returns the columns of one table; the column that names the rows gets room first."""
    first = JOINT if len(which) > 1 else ()
    ranks = {name: rank - len(first) for rank, name in enumerate(first)} | {named: -len(JOINT)}
    return [
        replace(specified(spec), rank=ranks.get(spec.name, spec.rank))
        for spec in specs_of(rows.columns)
        if spec.header is not None and (spec.table is None or spec.table in which)
    ]


def _displayed(groups: pd.DataFrame) -> pd.DataFrame:
    rows = largest_first(groups)
    if not (rows["nodes"] > 1).any():
        rows = rows.drop(columns="nodes")
    share = rows["time_share"]
    rows = rows.assign(bar=share / share.max())
    if "bytes_read" in rows:
        rows["bytes_moved"] = rows["bytes_read"] + rows["bytes_written"]
    if "time_us_ci95_high" in rows:  # the lower end stops at 0
        rows["time_us_plus_minus"] = rows["time_us_ci95_high"] - rows["time_us"]
    return rows
