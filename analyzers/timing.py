"""Times of nodes from the kernels that ran: statistics over runs, the profiler's cost removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyzers.statistics import outliers, summarize

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from tracer.trace import Run

    FloatArray = npt.NDArray[np.float64]

RUNTIME = "runtime"
"""Prefix of the row of a kernel that stands for no node of the model."""

_RAISED_NOTABLY = 1.25
_MOST_RAISED = 1024.0
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the table: kernels told in each, settled samples (runs × rows), bias per run."""

    members: Mapping[str, Sequence[int]]
    samples: FloatArray
    bias: FloatArray


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
    raw = summarize(rows.samples)
    bias = rows.bias * _raised(run, rows)
    mean = np.maximum(raw.mean - bias, 0.0)
    total = mean.sum()
    table = pd.DataFrame(
        {
            "calls": [sum(run.kernels[m].calls for m in ms) for ms in rows.members.values()],
            "time_us": mean,
            "time_us_p50": np.maximum(raw.p50 - bias, 0.0),
            "time_us_p95": np.maximum(raw.p95 - bias, 0.0),
            "time_us_min": np.maximum(raw.min - bias, 0.0),
            "time_us_std": raw.std,
            "time_us_ci95_low": np.maximum(mean - raw.ci95_half, 0.0),
            "time_us_ci95_high": mean + raw.ci95_half,
            "time_share": mean / total if total else np.nan,
            "time_us_raw": raw.mean,
            "kernels": [_joined(run, members) for members in rows.members.values()],
        },
        index=list(rows.members),
    )
    others = {
        key: table.at[g[0], "kernels"] for g in groups for key in g if key not in rows.members
    }
    return pd.concat([table, pd.DataFrame({"kernels": others})])


def wall(run: Run) -> Mapping[str, float]:
    """Statistics of the uninstrumented inferences, µs, without those that were disturbed."""
    settled = run.wall_us[~outliers(run.wall_us)]
    found = summarize(settled.reshape(-1, 1))
    names = ("mean", "p50", "p95", "min", "std")
    return {name: float(getattr(found, name)[0]) for name in names}


def coverage(run: Run, nodes: pd.DataFrame) -> float:
    """Sum of `time_us` ÷ mean wall; what is missing to 1 is the executor's own work."""
    return float(nodes["time_us"].sum()) / wall(run)["mean"]


def notes(run: Run, groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
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
    rows = _rows(run, groups)
    raised = _raised(run, rows)
    if raised > _RAISED_NOTABLY:
        found.append(
            f"the profiler cost {raised:.1f} times what calibration shows, or the sum would exceed "
            "the wall: nodes of a few µs are uncertain"
        )
    hidden = int((rows.samples.mean(axis=0) <= rows.bias * raised).sum())
    if hidden:
        found.append(f"{hidden} rows take less time than the profiler adds to them: shown as 0")
    return tuple(found)


def _rows(run: Run, groups: Sequence[tuple[str, ...]]) -> _Rows:
    import numpy as np

    members: dict[str, list[int]] = {}
    taken = {key for group in groups for key in group}
    for position, (kernel, group) in enumerate(zip(run.kernels, groups, strict=True)):
        key = group[0] if group else f"{RUNTIME}:{kernel.name}"
        while not group and (key in members or key in taken):
            key = f"{key}#{position}"
        members.setdefault(key, []).append(position)
    settled = run.samples[~outliers(run.instrumented_us)]
    costs = run.bias_us * np.array([kernel.calls for kernel in run.kernels])
    samples = np.zeros((len(settled), len(members)))
    bias = np.zeros(len(members))
    for column, positions in enumerate(members.values()):
        samples[:, column] = settled[:, positions].sum(axis=1)
        bias[column] = costs[positions].sum()
    return _Rows(members, samples, bias)


def _raised(run: Run, rows: _Rows) -> float:
    """Factor on the bias that brings the sum of the nodes down to the wall, at least 1.

    Nodes cannot take longer than the run they are part of. Where calibration on short chains
    leaves them to, the profiler cost more than it shows; the factor is found by halving.
    """
    import numpy as np

    mean, limit = rows.samples.mean(axis=0), wall(run)["mean"]

    def excess(factor: float) -> float:
        return float(np.maximum(mean - factor * rows.bias, 0.0).sum()) - limit

    low, high = 1.0, 2.0
    if excess(low) <= 0 or not rows.bias.any():
        return low
    while excess(high) > 0 and high < _MOST_RAISED:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _joined(run: Run, members: Sequence[int]) -> str:
    return "; ".join(dict.fromkeys(run.kernels[m].name for m in members))
