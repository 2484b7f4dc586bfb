"""What a report shows of one run of a trace: its rows, its findings, its peaks and its sums."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from tracer.analyzers.advice import advise
from tracer.analyzers.grouping import kernel_numbers, served_numbers
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.overflow import by_width
from tracer.analyzers.roofline import INT8, arithmetic
from tracer.analyzers.serving import served
from tracer.analyzers.timing import coverage, empty, wall, wall_interval
from tracer.analyzers.views import environment
from tracer.analyzers.views.page import Page, Table
from tracer.analyzers.views.report.content import (
    Content,
    Finding,
    Kind,
    Roofline,
    Roofs,
    RunContent,
    Sum,
    Widths,
    drawings,
    texts,
)
from tracer.analyzers.views.text import without_prefix
from tracer.analyzers.views.trace import headline, phases
from tracer.analyzers.views.trace.headline import Section, displayed, joined_runs, sections
from tracer.analyzers.views.trace.overflow import has_overflow, sums_text
from tracer.analyzers.views.trace.roofline import points
from tracer.analyzers.views.trace.run_tables import tables
from tracer.records.trace import Run, Trace, distinctions

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


def run_content(
    trace: Trace, section: Section, label: str, lines: tuple[str, ...], graph: int | None
) -> RunContent:
    """Returns the rows of one run with what is computed from them.

    `lines` are in the head, `graph` is the position of its graph in the report.
    """
    nodes, run = section.nodes, section.run
    rows = displayed(nodes)
    kernels = kernel_numbers(nodes)
    folded = served_numbers(nodes, kernels, served(section.topology))
    position = {name: row for row, name in enumerate(section.nodes["node"])}
    return RunContent(
        label=label,
        title=headline.headline(trace, section),
        lines=lines,
        rows=(sums_text(rows) if has_overflow(rows) else rows).reset_index(drop=True),
        kernels=kernels.tolist(),
        folded=None if (folded == kernels).all() else folded.tolist(),
        prefix=without_prefix(nodes["node"].tolist())[1],
        sum=_sum(run, nodes) if run is not None and not run.is_emulated else None,
        findings=tuple(
            Finding(each.rule, each.text, tuple(position[n] for n in each.nodes if n in position))
            for each in advise(trace, section.run, section.nodes)
        ),
        notes=run.notes if run is not None else (),
        roofs=_roofs(trace, run) if nodes["gflops_per_s"].notna().any() else None,
        roofline=_roofline(section),
        widths=_widths(trace, section),
        graph=graph,
    )


def _sum(run: Run, nodes: pd.DataFrame) -> Sum | None:
    mean, total = wall(run)["mean"], float(nodes["time_us"].sum())
    low, high = wall_interval(run)
    if not np.isfinite([mean, low, high]).all() or not nodes["time_us"].notna().any():
        return None
    return Sum(mean, low, high, total, mean - total, empty(run), coverage(run, nodes))


def _roofs(trace: Trace, run: Run | None) -> Roofs | None:
    peaks = trace.environment.peaks_at(run.threads if run else None)
    if peaks is None:
        return None
    int8 = peaks.int8.rate if peaks.int8 else None
    return Roofs(peaks.float32.rate, int8, peaks.memory.rate, peaks.threads)


def _roofline(section: Section) -> Roofline | None:
    position = np.arange(len(section.nodes))
    rows, hidden = points(section.nodes.assign(row=position))
    if rows.empty:
        return None
    kernels = section.run.kernels if section.run else ()
    return Roofline(
        rows=tuple(rows["row"].astype(int)),
        x=tuple(rows["x"].astype(float)),
        y=tuple(rows["y"].astype(float)),
        sure=tuple(rows["sure"].astype(bool)),
        hidden=hidden,
        integer=any(arithmetic(kernel) == INT8 for kernel in kernels),
    )


def _widths(trace: Trace, section: Section) -> Widths | None:
    """Returns the overflows at every width of the sums in these rows."""
    own = () if section.run is None else (section.run,)
    position = {name: row for row, name in enumerate(section.nodes["node"])}
    counted = [
        sums for run in (*own, *joined_runs(trace)) for sums in run.sums if sums.node in position
    ]
    if not counted:
        return None
    bits, overflow, persistent = by_width(counted)
    return Widths(
        rows=tuple(position[sums.node] for sums in counted),
        bits=tuple(bits),
        overflow=tuple(map(tuple, overflow.tolist())),
        persistent=tuple(map(tuple, persistent.tolist())),
        outputs=tuple(int(sums.tally.outputs.sum()) for sums in counted),
    )
