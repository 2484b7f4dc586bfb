"""What stands above and below a table: what was measured, how far to trust it, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from analyzers.timing import coverage, empty, wall
from analyzers.views._format import micros, plural, printable, quantity, si
from analyzers.views._tables import Section
from tracer.records.environment import Peaks
from tracer.records.trace import Run, Trace


def headline(trace: Trace, section: Section) -> str:
    """The model and how it ran."""
    run = section.run
    parts = [trace.model.name]
    if section.batch is not None:
        parts.append(f"batch {section.batch:,}")
    if run is not None:
        version = trace.environment.packages.get(run.executor, "")
        parts.append(f"{run.executor} {version}".strip())
        if "optimization" in trace.settings:
            parts.append(f"optimization {trace.settings['optimization']}")
        parts.append(_threads(trace))
        parts.append(plural(len(run.instrumented_us), "run"))
    return " · ".join(parts)


def verdict(run: Run, nodes: pd.DataFrame) -> tuple[str, ...]:
    """The undisturbed wall beside the sum over nodes, corrected and as reported."""
    measured = wall(run)
    if run.sums:  # nobody asks how fast an emulation is, but how long it takes
        return (f"emulated in {micros(measured['mean'])} µs a run",)
    raw = float(nodes["time_us_raw"].sum())
    corrected = float(nodes["time_us"].sum())
    alone = empty(run)
    rest = f"rest  {micros(measured['mean'] - corrected)} µs, of which a run without nodes takes "
    return (
        f"wall  {micros(measured['mean'])} µs a run without profiler "
        f"(mean of {len(run.wall_us):,}; median {micros(measured['p50'])}, "
        f"p95 {micros(measured['p95'])})",
        f"nodes {micros(corrected)} µs in sum, coverage {coverage(run, nodes):.0%}; "
        f"{micros(raw)} µs as reported, before the profiler's own cost is taken off",
        *([f"{rest}{micros(alone)}"] if alone is not None else []),
    )


def totals(trace: Trace, nodes: pd.DataFrame) -> str:
    """Sums over the model, "at least" where a node's work is not known; shared parameters once."""
    if not trace.model.opsets:  # what ran was no graph, of which work could be counted
        known = trace.model.params
        parameters = f", {si(known)} parameters" if known is not None else ""
        return f"{plural(trace.model.nodes, 'operator')} forward{parameters}"
    own = nodes[nodes["index"].notna()]  # the runtime's own kernels do none of the model's work
    parts = [_sum(own["macs"], "{} MACs", si), _sum(own["flops"], "{} flops", si)]
    if trace.model.params is not None:
        parts.append(f"{si(trace.model.params)} parameters")
    moved = own["bytes_read"] + own["bytes_written"]
    parts.append(_sum(moved, "{} moved", lambda size: quantity(size, "B")))
    return f"{plural(trace.model.nodes, 'node')}: {', '.join(parts)}"


def roofs(peaks: Peaks | None) -> tuple[str, ...]:
    """What the machine can do at most, where a roofline compares kernels with it."""
    if peaks is None:
        return ()
    int8 = f", {si(peaks.int8.rate)}OP/s in int8" if peaks.int8 else ""
    return (
        f"roofs {si(peaks.float32.rate)}FLOP/s in float32{int8}, {si(peaks.memory.rate)}B/s from "
        f"memory with {plural(peaks.threads, 'thread')}",
    )


def memory(section: Section) -> tuple[str, ...]:
    """The most bytes that are alive at once, and what the runtime's arena held."""
    own = section.nodes[section.nodes["index"].notna()]
    live = own["peak_bytes"].dropna()
    if section.run is not None and not any(section.nodes["output_bytes"].notna()):
        return ()  # of what ran in a framework the peaks are those of single operators
    if live.empty:
        return ()
    at_least = "at least " if len(live) < len(own) else ""
    where = printable(str(own["node"].iloc[int(own["peak_bytes"].argmax())]))
    text = f"memory: {at_least}{quantity(float(live.max()), 'B')} of tensors alive at {where}"
    kernels = section.run.kernels if section.run else ()
    arena = [k.arena_peak_bytes for k in kernels if k.arena_peak_bytes is not None]
    if arena and section.run is not None:
        text += f"; {section.run.executor}'s arena had {quantity(max(arena), 'B')} in use at most"
    return (text,)


def _sum(column: pd.Series[Any], what: str, text: Callable[[float], str]) -> str:
    """The sum of what is known, said to be that where something is not."""
    missing = int(column.isna().sum())
    if missing and missing == len(column):
        return what.format("unknown")
    total = what.format(text(float(column.sum())))
    return f"at least {total}" if missing else total


def _threads(trace: Trace) -> str:
    threads = trace.settings.get("threads")
    return plural(threads, "thread") if threads else "default threads"
