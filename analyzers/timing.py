"""Times of nodes from the kernels that ran: statistics over runs, without profiler overhead."""

from collections.abc import Iterator, Mapping, Sequence
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
"""Overhead that differs from the calibrated overhead by this factor or more gets a note."""

_LOOSE, _LOOSE_SHARE = 5.0, 0.2
"""A rest of more times a run without nodes, and of a larger share of the wall, gets a note."""

_TELLING = 2.0
_Z_975 = 1.96


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the table: kernels of each, samples without outliers (runs × rows), bias per run.

    `error` is the standard deviation of each row's bias, µs per run.
    """

    members: Mapping[str, Sequence[int]]
    samples: FloatArray
    bias: FloatArray
    error: FloatArray


def timing(run: Run, groups: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    """Returns the timing columns, indexed by node key, for every node that a kernel stands for.

    `groups` gives the nodes of each kernel of the run. The first node of a kernel has its time; the
    other nodes name the kernel, and in `timed_in` the first node. A kernel that belongs to the
    runtime has a row called `runtime:<name>`. Outliers (see `statistics.outliers`) are excluded;
    `notes` counts them. Confidence intervals include the variation between runs and the uncertainty
    of the correction (see `correction`). More columns separate them: `random_us`, half the 95 %
    interval of the variation, `systematic_us`, the standard deviation of the correction, and
    `misfit_us`, its part that is the row's own.
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
            "time_us_device": [_on_device(run, members) for members in rows.members.values()],
            "kernels": [_joined(run, members) for members in rows.members.values()],
            "random_us": raw.ci95_half,
            "systematic_us": correction.error,
            "misfit_us": correction.own,
        },
        index=list(rows.members),
    )
    hosts = {key: group[0] for group in groups for key in group if key not in rows.members}
    labels = dict(zip(table.index, table["kernels"].tolist(), strict=True))
    fused = {key: labels[host] for key, host in hosts.items()}
    return pd.concat([table, pd.DataFrame({"kernels": fused, "timed_in": hosts}, dtype="object")])


def largest(run: Run, groups: Sequence[tuple[str, ...]], top: int) -> tuple[int, ...]:
    """Returns the positions of the kernels in the `top` longest rows, longest row first."""
    rows = _rows(run, groups)
    times = _correction(run, rows).of(rows.samples.mean(axis=0))
    members = list(rows.members.values())
    return tuple(m for row in (-times).argsort(kind="stable")[:top] for m in members[row])


def wall(run: Run) -> Mapping[str, float]:
    """Returns statistics of the runs without profiler, µs, outliers excluded."""
    settled = run.wall_us[~outliers(run.wall_us)]
    summary = summarize(settled.reshape(-1, 1))
    names = ("mean", "p50", "p95", "min", "std")
    return {name: float(getattr(summary, name)[0]) for name in names}


def wall_interval(run: Run) -> tuple[float, float]:
    """Returns the 95 % confidence interval of the mean wall time, µs; a point for a single run."""
    mean, half = wall(run)["mean"], _Z_975 * _variance(run.wall_us) ** 0.5
    return max(mean - half, 0.0), mean + half


def empty(run: Run) -> float | None:
    """Returns the mean time of a run without nodes, µs; None if it was not measured."""
    if run.empty_us is None:
        return None
    return float(run.empty_us[~outliers(run.empty_us)].mean())


def coverage(run: Run, nodes: pd.DataFrame) -> float:
    """Returns the sum of `time_us` ÷ mean wall time."""
    return float(nodes["time_us"].sum()) / wall(run)["mean"]


def notes(run: Run, groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns warnings: excluded runs, an unexpected overhead, rows within the overhead."""
    warnings = []
    slow, slow_profiled = int(outliers(run.wall_us).sum()), int(outliers(run.instrumented_us).sum())
    if slow or slow_profiled:
        warnings.append(
            f"{slow_profiled:,} of {len(run.instrumented_us):,} profiled runs and {slow:,} of "
            f"{len(run.wall_us):,} unprofiled runs are excluded as outliers (was another program "
            "busy?)"
        )
    rows = _rows(run, groups)
    correction = _correction(run, rows)
    warnings += _fit(run, rows, correction)
    net = rows.samples.mean(axis=0) - correction.added
    short = int(((rows.bias > 0) & (net < _TELLING * correction.error)).sum())
    if short:
        warnings.append(
            f"{short} of {len(net)} rows cannot be separated from profiler overhead; their "
            "confidence intervals start near 0"
        )
    return tuple(warnings)


def _fit(run: Run, rows: _Rows, correction: Correction) -> Iterator[str]:
    """Yields what does not fit together: the profiled runs, the undisturbed, and those of no node.

    A difference within the scatter of the undisturbed runs is not put down to the profiler.
    """
    total, extra = wall(run), float(correction.added.sum() - rows.bias.sum())
    factor = correction.added.sum() / rows.bias.sum() if rows.bias.any() else 1.0
    if not 1 / _NOTABLE <= factor <= _NOTABLE:
        if abs(extra) <= total["std"]:
            yield (
                f"profiled runs took {abs(extra):,.1f} µs {'more' if extra > 0 else 'less'} than "
                f"undisturbed runs and the calibrated overhead; undisturbed runs scatter by "
                f"{total['std']:,.1f} µs (one standard deviation), so other programs may be why"
            )
        else:
            yield (
                f"profiler overhead was {factor:.2f} times the calibrated overhead, so times of a "
                "few µs are uncertain"
            )
    alone, flat = empty(run), not any(kernel.scope for kernel in run.kernels)
    nodes = float(correction.of(rows.samples.mean(axis=0)).sum())
    rest = total["mean"] - nodes
    if alone is not None and flat and rest > max(_LOOSE * alone, _LOOSE_SHARE * total["mean"]):
        yield (
            f"nodes and undisturbed runs do not fit together: {rest:,.1f} µs are in no node, and a "
            f"run without nodes takes {alone:,.1f} µs. The machine was slower in the undisturbed "
            "runs: profile again"
        )


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

    def by_row(values: FloatArray) -> FloatArray:
        """Sums the kernels (on the last axis) of each row."""
        order = np.array([each for positions in members.values() for each in positions], np.intp)
        starts = np.cumsum([0, *map(len, members.values())])[:-1]
        # float32 while it is recorded, float64 from a file; take() lays both out alike
        samples = values.take(order, axis=-1)
        sums: FloatArray = np.add.reduceat(samples, starts, axis=-1, dtype=np.float64)
        return sums

    return _Rows(members, by_row(settled), by_row(run.bias_us * calls), np.sqrt(by_row(variances)))


def _errors(run: Run, samples: FloatArray, calls: FloatArray) -> FloatArray:
    clock = tick_error(samples, calls, run.tick_us) if run.tick_us else np.zeros(len(calls))
    single = np.zeros(len(calls)) if run.bias_error_us is None else run.bias_error_us
    errors: FloatArray = np.hypot(clock, single * calls)
    return errors


def _correction(run: Run, rows: _Rows) -> Correction:
    """Adjusts the overhead so that the rows sum to the wall time less that of an empty run."""
    total, variance = wall(run)["mean"], _variance(run.wall_us)
    if run.empty_us is not None:
        total, variance = total - (empty(run) or 0.0), variance + _variance(run.empty_us)
    target = Sum(max(total, 0.0), variance**0.5, bound=run.empty_us is None)
    return correct(rows.samples.mean(axis=0), rows.bias, rows.error, target)


def _variance(times: FloatArray) -> float:
    """Returns the variance of the mean of consecutive times; 0 for a single time."""
    settled = times[~outliers(times)]
    half = float(ci95_half(settled.reshape(-1, 1))[0])
    return 0.0 if half != half else (half / _Z_975) ** 2


def _replayed(run: Run, members: Sequence[int]) -> float:
    """Returns the time of kernels run in isolation, µs per run; NaN unless all were."""
    if run.replayed_us is None:
        return float("nan")
    return float(sum(run.replayed_us[m] * run.kernels[m].calls for m in members))


def _on_device(run: Run, members: Sequence[int]) -> float:
    """Returns the time on the device of what kernels launched, µs per run; NaN if not measured."""
    times = [run.kernels[m].device_us for m in members]
    known = [time for time in times if time is not None]
    return float(sum(known)) if known else float("nan")


def _joined(run: Run, members: Sequence[int]) -> str:
    return "; ".join(dict.fromkeys(run.kernels[m].name for m in members))
