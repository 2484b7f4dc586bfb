"""What files hold of a trace: the document of a JSON file, and the content of a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums, error_limit
from tracer.analyzers.advice import advise
from tracer.analyzers.grouping import kernel_numbers, served, served_numbers
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.overflow import by_width, channels, widths
from tracer.analyzers.roofline import INT8, TIMES, arithmetic, shown_peaks
from tracer.analyzers.table import backward_share
from tracer.analyzers.timing import coverage, empty, wall, wall_interval
from tracer.analyzers.views import environment
from tracer.analyzers.views import report as reports
from tracer.analyzers.views.file_formats.json import fields, records
from tracer.analyzers.views.page import Page, Table
from tracer.analyzers.views.text import without_prefix
from tracer.analyzers.views.trace import phases
from tracer.analyzers.views.trace.charts import points
from tracer.analyzers.views.trace.headline import (
    Section,
    displayed,
    headline,
    joined_runs,
    rows,
    sections,
)
from tracer.analyzers.views.trace.overflow import has_overflow, sums_text
from tracer.analyzers.views.trace.run_tables import tables
from tracer.records.columns import BY_NAME, SUMMED
from tracer.records.trace import Run, Trace, distinctions

if TYPE_CHECKING:
    from tracer.accumulators.statistics.partial_sums import PartialSums


def document(trace: Trace, options: ViewOptions) -> dict[str, Any]:
    """`nodes` of a run are its rows of the node table, folded by `by`. `backward_share` is the part
    of a backward pass in their time, None without one.

    `joined` are the runs of a merged trace whose columns are in the rows of `runs`. `advice` are
    sentences, each with the rule, the nodes and the figures behind it. `sums` describe nodes with
    narrow accumulators: the accumulator, overflow at every width, and the overflow columns by
    output channel. `float_sums` describe those with float accumulators: counts, and how many sums
    have a relative error below each limit. `generation` is None but for the phases of a language
    model: tokens, cache, and the speed of whole generations.
    """
    return {
        **fields(trace, "model", "environment", "settings", "notes"),
        "runs": [_run_fields(trace, section, options) for section in sections(trace)],
        "generation": phases.generation(trace),
        "joined": [
            {
                "batch": run.batch,
                "executor": run.executor,
                "inputs": run.inputs,
                "wall_us": wall(run),
                "sums": [_sums(sums) for sums in run.sums],
                "float_sums": [_float_sums(sums) for sums in run.float_sums],
            }
            for run in joined_runs(trace)
        ],
    }


def _run_fields(trace: Trace, section: Section, options: ViewOptions) -> dict[str, Any]:
    run = section.run
    counted = run.counted if run else None
    # Sums of the columns that add up; one is left out where no node has a value, and with unknown
    # nodes it is a lower bound. A weight that several nodes share counts once. The time of all is
    # known from undisturbed runs, and better than the ends of its rows' intervals add up to.
    own = section.nodes[section.nodes["index"].notna()]
    added = [name for name in SUMMED if name not in TIMES[1:]]
    sums = {name: own[name].sum() for name in added if own[name].notna().any()}
    totals = {n: int(v) if BY_NAME[n].dtype == "Int64" else float(v) for n, v in sums.items()}
    whole = {"params": trace.model.params, "param_bytes": trace.model.param_bytes}
    totals |= {n: v for n, v in whole.items() if n in totals and v is not None}
    return {
        "batch": section.batch,
        "executor": run.executor if run else None,
        "threads": run.threads if run else None,
        "optimization": run.optimization if run else None,
        "phase": section.phase,
        "past": section.past,
        "inputs": run.inputs if run else None,
        "wall_us": wall(run) if run else None,
        "runs_per_s": 1e6 / wall(run)["mean"] if run and wall(run)["mean"] else None,
        "empty_us": empty(run) if run else None,
        # how busy the machine was, and which runs count; `text` is None on a quiet machine
        "load": None
        if counted is None
        else {
            "others_share": counted.others,
            "runs": counted.total,
            "disturbed": counted.disturbed,
            "left_out": counted.left_out,
            "text": counted.sentence(),
        },
        "returning_us": run.returning_us if run else None,
        "coverage": coverage(run, section.nodes) if run else None,
        "backward_share": backward_share(section.nodes) if run else None,
        "totals": {**totals, "nodes_unknown": int(own["macs"].isna().sum())},
        "by": options.by,
        "nodes": records(rows(section, options)),
        "advice": advise(trace, run, section.nodes),
        "sums": [_sums(sums) for sums in run.sums] if run else [],
        "float_sums": [_float_sums(sums) for sums in run.float_sums] if run else [],
    }


def _sums(sums: PartialSums) -> dict[str, Any]:
    return {
        "node": sums.node,
        "accumulator": sums.tally.accumulator.to_plain(),
        "bits_guaranteed_any_order": sums.guaranteed_any_order,
        "mean_abs_error": None if sums.tally.missing.any() else sums.tally.mean_abs_error,
        "widths": records(widths(sums)),
        "channels": records(channels(sums)),
    }


def _float_sums(sums: FloatPartialSums) -> dict[str, Any]:
    """An error is missing where it is infinite, as in the last of `errors`."""
    tally, counts = sums.tally, sums.tally.error_histogram
    return {
        "node": sums.node,
        "accumulator": tally.accumulator,
        "operands": tally.operands,
        **tally.counts(),
        "greatest_error": tally.greatest_error,
        "errors": [
            {"below": error_limit(position), "outputs": int(counts[position])}
            for position in counts.nonzero()[0].tolist()
        ],
    }


_INTERPRETERS = ("reference", "emulated", "narrowed")
"""Executors whose times are those of an interpreter."""


def report(trace: Trace, options: ViewOptions) -> reports.Content:
    """Returns what a report shows of a trace; the options fold only what scripts do not show."""
    shown = sections(trace)
    graphs, (graph,) = reports.drawings([trace.model])
    by_section = [tuple(tables(trace, section, options)) for section in shown]
    page = Page(
        tuple(table for some in by_section for table in some),
        trace.notes,
        trace.environment.summary,
    )
    runs = [s.run for s in shown if s.run is not None]
    labels = distinctions(runs) if runs else ("",)
    kind: reports.Kind = "profile" if trace.runs else "count"
    if trace.runs and all(run.executor in _INTERPRETERS for run in trace.runs):
        kind = "interpret"
    first = {}
    if kind == "interpret" and any(run.sums for run in trace.runs):
        over = trace.nodes["overflow_outputs"].gt(0).any()
        column = "overflow_outputs" if over else "bits_observed"
        first = {"view": "overflow", "sort": column, "color": "overflow_share" if over else column}
    elif kind == "interpret":
        first = {"view": "errors", "sort": "rel_error_p99", "color": "rel_error_p99"}
    return reports.Content(
        title=page.tables[0].title if page.tables else trace.model.name,
        kind=kind,
        page=page,
        runs=tuple(
            run_content(
                trace, section, label, (*phases.phase_lines(trace, section), *lines(some)), graph
            )
            for section, label, some in zip(shown, labels, by_section, strict=True)
        ),
        graphs=graphs,
        sources=reports.texts(trace.nodes["source"]),
        environment=environment.machine_fields(trace.environment),
        first=first,
    )


def lines(tables: Iterable[Table]) -> tuple[str, ...]:
    """Returns what a page says above and below its tables."""
    return tuple(line for table in tables for line in (*table.head, *table.lines))


def run_content(
    trace: Trace, section: Section, label: str, lines: tuple[str, ...], graph: int | None
) -> reports.RunContent:
    """Returns the rows of one run with what is computed from them.

    `lines` are in the head, `graph` is the position of its graph in the report.
    """
    nodes, run = section.nodes, section.run
    rows = displayed(nodes)
    kernels = kernel_numbers(nodes)
    folded = served_numbers(nodes, kernels, served(section.topology))
    position = {name: row for row, name in enumerate(section.nodes["node"])}
    roofs, peaks = None, trace.environment.peaks_at(run.threads if run else None)
    if peaks is not None and nodes["gflops_per_s"].notna().any():
        int8 = peaks.int8.rate if peaks.int8 else None
        shown = shown_peaks(peaks, run).items()
        others = {kind: peak.rate for kind, peak in shown if kind not in ("float32", INT8)}
        roofs = reports.Roofs(peaks.float32.rate, int8, peaks.memory.rate, peaks.threads, others)
    return reports.RunContent(
        label=label,
        title=headline(trace, section),
        lines=lines,
        rows=(sums_text(rows) if has_overflow(rows) else rows).reset_index(drop=True),
        kernels=kernels.tolist(),
        folded=None if (folded == kernels).all() else folded.tolist(),
        prefix=without_prefix(nodes["node"].tolist())[1],
        sum=_sum(run, nodes) if run is not None and not run.is_emulated else None,
        findings=tuple(
            reports.Finding(
                each.rule, each.text, tuple(position[n] for n in each.nodes if n in position)
            )
            for each in advise(trace, section.run, section.nodes)
        ),
        notes=run.notes if run is not None else (),
        roofs=roofs,
        roofline=_roofline(section),
        widths=_widths(trace, section),
        graph=graph,
    )


def _sum(run: Run, nodes: pd.DataFrame) -> reports.Sum | None:
    mean, total = wall(run)["mean"], float(nodes["time_us"].sum())
    low, high = wall_interval(run)
    if not np.isfinite([mean, low, high]).all() or not nodes["time_us"].notna().any():
        return None
    return reports.Sum(mean, low, high, total, mean - total, empty(run), coverage(run, nodes))


def _roofline(section: Section) -> reports.Roofline | None:
    position = np.arange(len(section.nodes))
    rows, hidden = points(section.nodes.assign(row=position))
    if rows.empty:
        return None
    kernels = section.run.kernels if section.run else ()
    return reports.Roofline(
        rows=tuple(rows["row"].astype(int)),
        x=tuple(rows["x"].astype(float)),
        y=tuple(rows["y"].astype(float)),
        sure=tuple(rows["sure"].astype(bool)),
        hidden=hidden,
        integer=any(arithmetic(kernel) == INT8 for kernel in kernels),
    )


def _widths(trace: Trace, section: Section) -> reports.Widths | None:
    """Returns the overflows at every width of the sums in these rows."""
    own = () if section.run is None else (section.run,)
    position = {name: row for row, name in enumerate(section.nodes["node"])}
    counted = [
        sums for run in (*own, *joined_runs(trace)) for sums in run.sums if sums.node in position
    ]
    if not counted:
        return None
    bits, overflow, persistent = by_width(counted)
    return reports.Widths(
        rows=tuple(position[sums.node] for sums in counted),
        bits=tuple(bits),
        overflow=tuple(map(tuple, overflow.tolist())),
        persistent=tuple(map(tuple, persistent.tolist())),
        outputs=tuple(int(sums.tally.outputs.sum()) for sums in counted),
    )
