"""What a report shows of a trace: each run with all of its rows, and what is known of the whole."""

from collections.abc import Iterable

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import environment
from tracer.analyzers.views.page import Page, Table
from tracer.analyzers.views.report.content import Content, Kind
from tracer.analyzers.views.report.graphs import drawings
from tracer.analyzers.views.report.sources import texts
from tracer.analyzers.views.trace import phases
from tracer.analyzers.views.trace.run_content import run_content
from tracer.analyzers.views.trace.sections import sections
from tracer.analyzers.views.trace.tables import tables
from tracer.records.trace import Trace, distinctions

_INTERPRETERS = ("reference", "emulated", "narrowed")
"""Executors whose times are those of an interpreter."""


def report(trace: Trace, options: ViewOptions) -> Content:
    """Returns what a report shows of a trace; the options fold only what scripts do not show."""
    shown = sections(trace)
    graphs, (graph,) = drawings([trace.model])
    by_section = [tuple(tables(trace, section, options)) for section in shown]
    page = Page(
        tuple(table for some in by_section for table in some),
        trace.notes,
        trace.environment.summary,
    )
    runs = [s.run for s in shown if s.run is not None]
    labels = distinctions(runs) if runs else ("",)
    return Content(
        title=page.tables[0].title if page.tables else trace.model.name,
        kind=_kind(trace),
        page=page,
        runs=tuple(
            run_content(trace, section, label, (*phases.told(trace, section), *lines(some)), graph)
            for section, label, some in zip(shown, labels, by_section, strict=True)
        ),
        graphs=graphs,
        sources=texts(trace.nodes["source"]),
        environment=environment.told(trace.environment),
        notes=trace.notes,
    )


def lines(tables: Iterable[Table]) -> tuple[str, ...]:
    """Returns what a page says above and below its tables."""
    return tuple(line for table in tables for line in (*table.head, *table.lines))


def _kind(trace: Trace) -> Kind:
    if not trace.runs:
        return "count"
    return "interpret" if all(run.executor in _INTERPRETERS for run in trace.runs) else "profile"
