"""The view of a Trace: its page, table, document, charts, report and file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page
from tracer.analyzers.views.trace import charts, phases
from tracer.analyzers.views.trace.charts import sums_figure as sums
from tracer.analyzers.views.trace.contents import document, report
from tracer.analyzers.views.trace.exchange import board, stacks, timeline
from tracer.analyzers.views.trace.headline import sections, table
from tracer.analyzers.views.trace.model_files import annotated, head_room, node_times, node_values
from tracer.analyzers.views.trace.roofline import figure as roofline
from tracer.analyzers.views.trace.run_tables import tables
from tracer.records.trace import Trace
from tracer.storage import trace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "annotated",
    "board",
    "document",
    "figure",
    "head_room",
    "node_times",
    "node_values",
    "page",
    "report",
    "roofline",
    "stacks",
    "stored",
    "sums",
    "table",
    "timeline",
]


def page(trace: Trace, options: ViewOptions) -> Page:
    """The tables of all runs, phases side by side, then what to know about them."""
    if trace.generation is not None:
        shown = list(phases.tables(trace, trace.generation, options))
    else:
        shown = [each for section in sections(trace) for each in tables(trace, section, options)]
    return Page(tuple(shown), trace.notes, trace.environment.summary)


def figure(trace: Trace, options: ViewOptions) -> Figure:
    """The time of each layer; if the times are of emulated accumulators, their histograms."""
    if all(section.run is not None and section.run.sums for section in sections(trace)):
        return charts.sums_figure(trace, options)
    return charts.times_figure(trace, options)


def stored(trace: Trace, options: ViewOptions) -> bytes:
    """The trace as an SQLite file."""
    return trace_file.dumps(trace)
