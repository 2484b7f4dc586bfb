"""What a report shows of a trace: each run with all of its rows, its findings and its peaks."""

import numpy as np
import pandas as pd

from analyzers.advice import advise
from analyzers.grouping import kernel_numbers
from analyzers.options import ViewOptions
from analyzers.overflow import widths
from analyzers.timing import coverage, empty, wall, wall_interval
from analyzers.views import environment
from analyzers.views.page import Page
from analyzers.views.report.content import Content, Finding, Kind, Roofs, RunContent, Sum, Widths
from analyzers.views.report.redaction import redacted
from analyzers.views.report.sources import texts
from analyzers.views.trace import headline
from analyzers.views.trace.overflow import described, has_overflow
from analyzers.views.trace.sections import Section, displayed, sections
from analyzers.views.trace.tables import tables
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.records.trace import Run, Trace, distinctions

_INTERPRETERS = ("reference", "narrowed")
"""Executors whose times are those of an interpreter."""


def report(trace: Trace, options: ViewOptions) -> Content:
    """Returns what a report shows of a trace; the options fold only what scripts do not show."""
    shown = sections(trace)
    by_section = [tuple(tables(trace, section, options)) for section in shown]
    page = Page(
        tuple(table for some in by_section for table in some),
        trace.notes,
        trace.environment.summary,
    )
    runs = [s.run for s in shown if s.run is not None]
    labels = distinctions(runs) if runs else ("",)
    content = Content(
        title=page.tables[0].title if page.tables else trace.model.name,
        kind=_kind(trace),
        page=page,
        runs=tuple(
            _run(trace, section, label, tuple(line for t in some for line in (*t.head, *t.lines)))
            for section, label, some in zip(shown, labels, by_section, strict=True)
        ),
        sources=texts(trace.nodes["source"]),
        environment=_facts(trace),
        notes=trace.notes,
    )
    return redacted(content, _names(trace)) if options.redact else content


def _words(accumulator: Accumulator) -> str:
    return f"{accumulator.order}, {accumulator.overflow}"


def _facts(trace: Trace) -> tuple[tuple[str, str], ...]:
    facts = environment.table(trace.environment, ViewOptions())
    return tuple(zip(facts["name"], facts["value"], strict=True))


def _names(trace: Trace) -> set[str]:
    """Returns names that a path could be taken for."""
    texts = (trace.nodes[name].dropna() for name in ("node", "module", "kernels", "op_type"))
    return {name for column in texts for name in column}


def _kind(trace: Trace) -> Kind:
    if not trace.runs:
        return "count"
    return "interpret" if all(run.executor in _INTERPRETERS for run in trace.runs) else "profile"


def _run(trace: Trace, section: Section, label: str, lines: tuple[str, ...]) -> RunContent:
    nodes, run = section.nodes, section.run
    rows = displayed(nodes)
    return RunContent(
        label=label or headline.headline(trace, section),
        lines=lines,
        rows=(described(rows) if has_overflow(rows) else rows).reset_index(drop=True),
        kernels=kernel_numbers(nodes).tolist(),
        sum=_sum(run, nodes) if run is not None and not run.sums else None,
        findings=_findings(trace, section),
        notes=run.notes if run is not None else (),
        roofs=_roofs(trace, run) if nodes["gflops_per_s"].notna().any() else None,
        widths=_widths(trace, section),
    )


def _sum(run: Run, nodes: pd.DataFrame) -> Sum | None:
    mean, total = wall(run)["mean"], float(nodes["time_us"].sum())
    low, high = wall_interval(run)
    if not np.isfinite([mean, low, high]).all() or not nodes["time_us"].notna().any():
        return None
    return Sum(mean, low, high, total, mean - total, empty(run), coverage(run, nodes))


def _findings(trace: Trace, section: Section) -> tuple[Finding, ...]:
    position = {name: row for row, name in enumerate(section.nodes["node"])}
    return tuple(
        Finding(each.rule, each.text, tuple(position[n] for n in each.nodes if n in position))
        for each in advise(trace, section.run, section.nodes)
    )


def _roofs(trace: Trace, run: Run | None) -> Roofs | None:
    peaks = trace.environment.peaks_at(run.threads if run else None)
    if peaks is None:
        return None
    int8 = peaks.int8.rate if peaks.int8 else None
    return Roofs(peaks.float32.rate, int8, peaks.memory.rate, peaks.threads)


def _widths(trace: Trace, section: Section) -> Widths | None:
    """Returns the overflows at every width of the runs whose sums are in these rows."""
    position = {name: row for row, name in enumerate(section.nodes["node"])}
    counted = [
        sums
        for run in trace.runs
        if run.batch == section.batch or run is section.run
        for sums in run.sums
        if sums.node in position
    ]
    if not counted:
        return None
    tables_of = [widths(sums).set_index("bits") for sums in counted]
    bits = sorted(set().union(*(table.index for table in tables_of)))
    full = [table.reindex(bits, fill_value=0) for table in tables_of]  # none overflow beyond
    return Widths(
        rows=tuple(position[sums.node] for sums in counted),
        bits=tuple(map(int, bits)),
        overflow=tuple(tuple(map(int, table["overflow_outputs"])) for table in full),
        persistent=tuple(tuple(map(int, table["persistent_outputs"])) for table in full),
        outputs=tuple(int(sums.tally.outputs.sum()) for sums in counted),
        accumulator=tuple(_words(sums.tally.accumulator) for sums in counted),
    )
