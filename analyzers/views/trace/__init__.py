"""The view of a Trace: its page, table, document, charts, report and file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page
from tracer.analyzers.views.trace import bars, histograms, phases
from tracer.analyzers.views.trace.annotated import annotated
from tracer.analyzers.views.trace.board import board
from tracer.analyzers.views.trace.document import document
from tracer.analyzers.views.trace.histograms import figure as sums
from tracer.analyzers.views.trace.node_colors import head_room, node_times
from tracer.analyzers.views.trace.node_values import node_values
from tracer.analyzers.views.trace.report import report
from tracer.analyzers.views.trace.roofline import figure as roofline
from tracer.analyzers.views.trace.sections import sections, table
from tracer.analyzers.views.trace.stacks import stacks
from tracer.analyzers.views.trace.tables import tables
from tracer.analyzers.views.trace.timeline import timeline
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
        return histograms.figure(trace, options)
    return bars.figure(trace, options)


def stored(trace: Trace, options: ViewOptions) -> bytes:
    """The trace as an SQLite file."""
    return trace_file.dumps(trace)
