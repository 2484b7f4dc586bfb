"""Times of nodes from the kernels that ran: statistics over runs, the profiler's cost removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analyzers.statistics import outliers, summarize

if TYPE_CHECKING:
    import pandas as pd

    from tracer.trace import Run

RUNTIME = "runtime"
"""Prefix of the row of a kernel that stands for no node of the model."""


def timing(run: Run, groups: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    """The timing columns, indexed by node key, for every node that a kernel stands for.

    `groups` gives the nodes of each kernel of the run. The time of a kernel that stands for
    several is told once, at the first of them; the others name the kernel and have no time.
    A kernel of the runtime's own has a row called `runtime:<name>`. Runs that something outside
    disturbed (see `statistics.outliers`) are left out; `notes` says how many.
    """
    import numpy as np
    import pandas as pd

    rows = _rows(run, groups)
    settled = run.samples[~outliers(run.instrumented_us)]
    samples = np.zeros((len(settled), len(rows)))
    bias, calls = np.zeros(len(rows)), np.zeros(len(rows))
    names: list[str] = []
    for column, members in enumerate(rows.values()):
        samples[:, column] = settled[:, members].sum(axis=1)
        calls[column] = sum(run.kernels[m].calls for m in members)
        bias[column] = sum(run.kernels[m].calls * run.bias_us[m] for m in members)
        names.append(_joined(run, members))
    raw = summarize(samples)
    corrected = np.maximum(raw.mean - bias, 0.0)
    total = corrected.sum()
    table = pd.DataFrame(
        {
            "calls": calls,
            "time_us": corrected,
            "time_us_p50": np.maximum(raw.p50 - bias, 0.0),
            "time_us_p95": np.maximum(raw.p95 - bias, 0.0),
            "time_us_min": np.maximum(raw.min - bias, 0.0),
            "time_us_std": raw.std,
            "time_us_ci95_low": np.maximum(raw.mean - bias - raw.ci95_half, 0.0),
            "time_us_ci95_high": np.maximum(raw.mean - bias + raw.ci95_half, 0.0),
            "time_share": corrected / total if total else np.nan,
            "time_us_raw": raw.mean,
            "kernels": names,
        },
        index=list(rows),
    )
    fused = {
        key: _joined(run, [position])
        for position, group in enumerate(groups)
        for key in group
        if key not in rows
    }
    return pd.concat([table, pd.DataFrame({"kernels": fused})])


def wall(run: Run) -> Mapping[str, float]:
    """Statistics of the uninstrumented inferences, µs, without those that were disturbed."""
    settled = run.wall_us[~outliers(run.wall_us)]
    found = summarize(settled.reshape(-1, 1))
    names = ("mean", "p50", "p95", "min", "std")
    return {name: float(getattr(found, name)[0]) for name in names}


def coverage(run: Run, nodes: pd.DataFrame) -> float:
    """Node time ÷ wall, both medians, so that a tail of slow runs does not decide it.

    Below 1 the rest is the executor's own work between nodes; above 1 the correction is short.
    """
    return float(nodes["time_us_p50"].sum()) / wall(run)["p50"]


def notes(run: Run, table: pd.DataFrame) -> tuple[str, ...]:
    """What a reader should know before trusting the figures."""
    found = []
    slow, count = int(outliers(run.wall_us).sum()), len(run.wall_us)
    slow_profiled = int(outliers(run.instrumented_us).sum())
    if slow or slow_profiled:
        found.append(
            f"{slow_profiled:,} of {len(run.instrumented_us):,} profiled and {slow:,} of {count:,} "
            "plain runs were far slower than the rest, as when another program takes the CPU; "
            "they are left out"
        )
    hidden = int(((table["time_us"] == 0) & (table["time_us_raw"] > 0)).sum())
    if hidden:
        found.append(f"{hidden} nodes take less time than the profiler adds to them: shown as 0")
    return tuple(found)


def _rows(run: Run, groups: Sequence[tuple[str, ...]]) -> dict[str, list[int]]:
    """Row key -> kernels whose time is told there."""
    rows: dict[str, list[int]] = {}
    for position, (kernel, group) in enumerate(zip(run.kernels, groups, strict=True)):
        key = group[0] if group else f"{RUNTIME}:{kernel.name}"
        if not group and key in rows:
            key = f"{key}#{position}"
        rows.setdefault(key, []).append(position)
    return rows


def _joined(run: Run, members: Sequence[int]) -> str:
    return "; ".join(run.kernels[m].name for m in members)
