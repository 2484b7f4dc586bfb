"""What stands above and below a table: what was measured, how far to trust it, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.views._format import micros, si

if TYPE_CHECKING:
    import pandas as pd

    from tracer.trace import Run, Trace


def headline(trace: Trace, run: Run | None, batch: int | None) -> str:
    """The model and how it ran."""
    parts = [trace.model.name]
    if batch is not None:
        parts.append(f"batch {batch}")
    if run is not None:
        version = trace.environment.packages.get(run.executor, "")
        parts.append(f"{run.executor} {version}".strip())
        if "optimization" in trace.settings:
            parts.append(f"optimization {trace.settings['optimization']}")
        parts.append(_threads(trace))
        parts.append(f"{len(run.instrumented_us):,} runs")
    return " · ".join(parts)


def verdict(run: Run, nodes: pd.DataFrame) -> tuple[str, ...]:
    """The undisturbed wall beside the sum over nodes, corrected and as reported."""
    from analyzers.timing import coverage, wall

    measured = wall(run)
    raw = float(nodes["time_us_raw"].sum())
    corrected = float(nodes["time_us"].sum())
    return (
        f"wall  {micros(measured['p50'])} µs a run without profiler "
        f"(median of {len(run.wall_us):,}; p95 {micros(measured['p95'])})",
        f"nodes {micros(corrected)} µs in sum, coverage {coverage(run, nodes):.0%}; "
        f"{micros(raw)} µs as reported, before the profiler's own cost is taken off",
    )


def totals(trace: Trace, nodes: pd.DataFrame) -> str:
    """Sums over the model; a parameter shared by nodes counts once."""
    parts = [f"{si(float(nodes['macs'].sum()))} MACs", f"{si(float(nodes['flops'].sum()))} flops"]
    if trace.model.params is not None:
        parts.append(f"{si(trace.model.params)} parameters")
    moved = float(nodes["bytes_read"].sum() + nodes["bytes_written"].sum())
    parts.append(f"{si(moved)}B moved")
    return f"{trace.model.nodes:,} nodes: {', '.join(parts)}"


def _threads(trace: Trace) -> str:
    threads = trace.settings.get("threads") or trace.environment.cpu_count
    return f"{threads} thread{'s' if threads != 1 else ''}"
