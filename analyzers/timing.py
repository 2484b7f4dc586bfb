"""Times of nodes from the kernels that ran: statistics over runs, the profiler's cost removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analyzers.correction import Correction, Sum, correct, tick_error
from analyzers.statistics import ci95_half, outliers, summarize
from tracer.records.trace import Run
from tracer.support.types import FloatArray

RUNTIME = "runtime"
"""Prefix of the row of a kernel that stands for no node of the model."""

_NOTABLE = 1.5
"""The factor on the profiler's cost, or its inverse, from which a reader is told of it."""

_TELLING = 2.0
_Z_975 = 1.96


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the table: kernels told in each, settled samples (runs × rows), bias per run.

    `error` is the standard deviation of what is not known of each row's bias alone, µs a run.
    """

    members: Mapping[str, Sequence[int]]
    samples: FloatArray
    bias: FloatArray
    error: FloatArray


def timing(run: Run, groups: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    """The timing columns, indexed by node key, for every node that a kernel stands for.

    `groups` gives the nodes of each kernel of the run. The time of a kernel that stands for
    several is told once, at the first of them; the others name the kernel and have no time.
    A kernel of the runtime's own has a row called `runtime:<name>`. Runs that something outside
    disturbed (see `statistics.outliers`) are left out; `notes` says how many. Intervals hold both
    what varies from run to run and what is uncertain of the correction (see `correction`). Two more
    columns tell these apart: half the 95 % interval of the former, `random_us`, and the standard
    deviation of the latter, `systematic_us`.
    """
    rows = _rows(run, groups)
    raw = summarize(rows.samples)
    correction = _correction(run, rows)
    mean = correction.of(raw.mean)
    total = mean.sum()
    low, high = correction.interval(raw.mean, raw.ci95_half / _Z_975)
    table = pd.DataFrame(
        {
            "calls": [sum(run.kernels[m].calls for m in ms) for ms in rows.members.values()],
            "time_us": mean,
            "time_us_p50": correction.of(raw.p50),
            "time_us_p95": correction.of(raw.p95),
            "time_us_min": correction.of(raw.min),
            "time_us_std": raw.std,
            "time_us_ci95_low": low,
            "time_us_ci95_high": high,
            "time_share": mean / total if total else np.nan,
            "time_us_raw": raw.mean,
            "time_us_replayed": [_replayed(run, members) for members in rows.members.values()],
            "kernels": [_joined(run, members) for members in rows.members.values()],
            "random_us": raw.ci95_half,
            "systematic_us": correction.error,
        },
        index=list(rows.members),
    )
    others = {
        key: table.at[g[0], "kernels"] for g in groups for key in g if key not in rows.members
    }
    return pd.concat([table, pd.DataFrame({"kernels": others})])


def largest(run: Run, groups: Sequence[tuple[str, ...]], top: int) -> tuple[int, ...]:
    """Positions of the kernels told in the `top` rows with the most time, longest row first."""
    rows = _rows(run, groups)
    times = _correction(run, rows).of(rows.samples.mean(axis=0))
    members = list(rows.members.values())
    return tuple(m for row in (-times).argsort(kind="stable")[:top] for m in members[row])


def wall(run: Run) -> Mapping[str, float]:
    """Statistics of the uninstrumented inferences, µs, without those that were disturbed."""
    settled = run.wall_us[~outliers(run.wall_us)]
    found = summarize(settled.reshape(-1, 1))
    names = ("mean", "p50", "p95", "min", "std")
    return {name: float(getattr(found, name)[0]) for name in names}


def empty(run: Run) -> float | None:
    """Mean time of a run without nodes, µs; None where it was not measured."""
    if run.empty_us is None:
        return None
    return float(run.empty_us[~outliers(run.empty_us)].mean())


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
    correction = _correction(run, rows)
    factor = correction.added.sum() / rows.bias.sum() if rows.bias.any() else 1.0
    if not 1 / _NOTABLE <= factor <= _NOTABLE:
        found.append(
            f"beside the undisturbed run the profiler cost {factor:.2f} times what calibration "
            "shows: nodes of a few µs are uncertain"
        )
    left = rows.samples.mean(axis=0) - correction.added
    short = int(((rows.bias > 0) & (left < _TELLING * correction.error)).sum())
    if short:
        found.append(
            f"{short} of {len(left)} rows are too short to be told from what the profiler adds to "
            "them: their intervals begin near 0"
        )
    return tuple(found)


def _rows(run: Run, groups: Sequence[tuple[str, ...]]) -> _Rows:
    members: dict[str, list[int]] = {}
    taken = {key for group in groups for key in group}
    for position, (kernel, group) in enumerate(zip(run.kernels, groups, strict=True)):
        key = group[0] if group else f"{RUNTIME}:{kernel.name}"
        while not group and (key in members or key in taken):
            key = f"{key}#{position}"
        members.setdefault(key, []).append(position)
    settled = run.samples[~outliers(run.instrumented_us)]
    calls = np.array([kernel.calls for kernel in run.kernels])
    variances = _errors(run, settled, calls) ** 2
    samples = np.zeros((len(settled), len(members)))
    bias, error = np.zeros(len(members)), np.zeros(len(members))
    for column, positions in enumerate(members.values()):
        samples[:, column] = settled[:, positions].sum(axis=1)
        bias[column] = (run.bias_us * calls)[positions].sum()
        error[column] = np.sqrt(variances[positions].sum())
    return _Rows(members, samples, bias, error)


def _errors(run: Run, samples: FloatArray, calls: FloatArray) -> FloatArray:
    """Standard deviation of what is not known of each kernel's bias alone, µs a run."""
    clock = tick_error(samples, calls, run.tick_us) if run.tick_us else np.zeros(len(calls))
    single = np.zeros(len(calls)) if run.bias_error_us is None else run.bias_error_us
    found: FloatArray = np.hypot(clock, single * calls)
    return found


def _correction(run: Run, rows: _Rows) -> Correction:
    """Rows adjusted to what an undisturbed run takes, less what an empty one does."""
    total, variance = wall(run)["mean"], _variance(run.wall_us)
    if run.empty_us is not None:
        total, variance = total - (empty(run) or 0.0), variance + _variance(run.empty_us)
    known = Sum(max(total, 0.0), variance**0.5, bound=run.empty_us is None)
    return correct(rows.samples.mean(axis=0), rows.bias, rows.error, known)


def _variance(times: FloatArray) -> float:
    """Of the mean of times that follow each other; 0 where one alone does not tell."""
    settled = times[~outliers(times)]
    half = float(ci95_half(settled.reshape(-1, 1))[0])
    return 0.0 if half != half else (half / _Z_975) ** 2


def _replayed(run: Run, members: Sequence[int]) -> float:
    """µs a run of kernels that were run alone; NaN unless all were."""
    if run.replayed_us is None:
        return float("nan")
    return float(sum(run.replayed_us[m] * run.kernels[m].calls for m in members))


def _joined(run: Run, members: Sequence[int]) -> str:
    return "; ".join(dict.fromkeys(run.kernels[m].name for m in members))
