"""Times of nodes from the kernels that ran: statistics over runs, without profiler overhead."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracer.analyzers.correction import Correction, Sum, correct, tick_error
from tracer.records.counted_runs import full_speed_us, outliers
from tracer.records.trace import Run, typed_table
from tracer.support.measurements import Summary, in_batches, summarize
from tracer.support.types import FloatArray
from tracer.text import agree, plural

if TYPE_CHECKING:
    from tracer.executors.registry import Profiled


def longest_fused(run: Run, groups: Sequence[tuple[str, ...]], top: int) -> tuple[str, ...]:
    """Returns the nodes of the `top` longest kernels that contain several, longest kernel first.

    `groups` gives the nodes of each kernel of the run.
    """
    every = (groups[position] for position in largest(run, groups, len(groups)))
    fused = list(dict.fromkeys(group for group in every if len(group) > 1))
    return tuple(dict.fromkeys(node for group in fused[:top] for node in group))


def fused_parts(
    times: pd.DataFrame, groups: Sequence[tuple[str, ...]], alone: Mapping[str, float]
) -> pd.DataFrame:
    """Returns `time_us_split` by node key: its part of the `time_us` of the rows in `times`.

    `alone` are times of nodes that ran alone, in any unit. A row with a node that has none, or NaN,
    keeps its whole time. The parts sum to `time_us`. The table is empty if `alone` is.
    """
    if not alone:
        return pd.DataFrame({"time_us_split": pd.Series(dtype="float64")})
    members: dict[str, dict[str, None]] = {}
    for group in groups:
        if group:
            members.setdefault(group[0], {}).update(dict.fromkeys(group))
    divided: defaultdict[str, float] = defaultdict(float)
    for row, time in times["time_us"].dropna().items():
        own = {node: alone.get(node, math.nan) for node in members.get(str(row), ())}
        total = sum(own.values())
        if not total > 0:
            own, total = {str(row): 1.0}, 1.0
        for node, each in own.items():
            divided[node] += time * each / total
    return pd.DataFrame({"time_us_split": pd.Series(divided)})


def split_notes(groups: Sequence[tuple[str, ...]], alone: Mapping[str, float]) -> tuple[str, ...]:
    """Returns that parts are estimates, and how many kernels were not divided; `()` if none was."""
    if not alone:
        return ()
    fused = [group for group in dict.fromkeys(groups) if len(group) > 1]
    divided = sum(sum(alone.get(node, math.nan) for node in group) > 0 for group in fused)
    return (
        f"the times of {divided} of {len(fused)} fused kernels are divided among their nodes, by "
        "the times of the nodes run alone: an estimate",
    )


RUNTIME = "runtime"
"""Prefix of the row of a kernel that stands for no node of the model."""

TAILS = "unprofiled runs take "
"""Begins the note on the slow end of the runs."""

_NOTABLE = 1.5
"""Overhead that differs from the calibrated overhead by this factor or more gets a note."""

_LOOSE, _LOOSE_SHARE = 5.0, 0.2
"""A rest of more times a run without nodes, and of a larger share of the wall, gets a note."""

_SEVERAL = 10
"""Undisturbed runs from which on it is said how they range."""

_VARIED = 0.03
"""Share of the wall by which the time of runs may vary, up and down, without a word."""

_UNEXPLAINED = 0.02
"""Share of the wall from which on it is said that nodes and wall do not fit together."""

_UNCERTAIN = 0.5
"""Share of the calibrated overhead by which the time that the rows leave of the wall may be off."""

_TELLING = 2.0
"""Standard deviations above 0 from which on a time can be told from profiler overhead."""
_Z_975 = 1.96


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the table: kernels of each, bias per run, and a summary of the samples that count.

    `error` is the standard deviation of each row's bias, µs per run.
    """

    members: Mapping[str, Sequence[int]]
    bias: FloatArray
    error: FloatArray
    raw: Summary


def timing(run: Run, groups: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    """Returns the timing columns, indexed by node key, for every node that a kernel stands for.

    `groups` gives the nodes of each kernel of the run. The first node of a kernel has its time; the
    other nodes name the kernel, and in `timed_in` the first node. A kernel that belongs to the
    runtime has a row called `runtime:<name>`. A time is the mean of the bulk of the runs that count
    (see `tracer.support.measurements.bulk` and `tracer.records.trace`), without the overhead of
    the profiler. Confidence intervals include the variation between runs and the uncertainty
    of the correction (see `correction`). A row that cannot be told from the overhead has an
    interval that begins at 0, and neither a share nor percentiles: its time is only a bound for it,
    and a part of sums. More columns separate the errors: `random_us`, half the 95 %
    interval of the variation, `systematic_us`, the standard deviation of the correction, and
    `misfit_us`, its part that is the row's own.
    """
    rows = _rows(run, groups)
    raw = rows.raw
    correction = _correction(run, rows)
    mean = correction.of(raw.mean)
    total = mean.sum()
    low, high = correction.interval(raw.mean, raw.ci95_half / _Z_975)
    resolved = ~_unresolved(rows, correction)
    overhead = raw.mean - mean

    def where_resolved(values: FloatArray) -> FloatArray:
        return np.where(resolved, values, np.nan)

    alone = run.replayed_us  # in isolation
    replayed = [None if alone is None else alone[m] * k.calls for m, k in enumerate(run.kernels)]
    table = pd.DataFrame(
        {
            "calls": [sum(run.kernels[m].calls for m in ms) for ms in rows.members.values()],
            "time_us": mean,
            "time_us_p50": where_resolved(np.maximum(raw.p50 - overhead, 0.0)),
            "time_us_p95": where_resolved(np.maximum(raw.p95 - overhead, 0.0)),
            "time_us_min": where_resolved(np.maximum(raw.min - overhead, 0.0)),
            "time_us_std": where_resolved(raw.std),
            "time_us_ci95_low": np.where(resolved, low, 0.0),
            "time_us_ci95_high": high,
            "time_share": where_resolved(mean / total) if total else np.nan,
            "time_us_raw": raw.mean,
            "time_us_replayed": _sums(rows, replayed),
            "time_us_device": _sums(rows, [kernel.device_us for kernel in run.kernels]),
            "time_us_host": _sums(rows, [kernel.host_us for kernel in run.kernels]),
            "kernels": [
                "; ".join(dict.fromkeys(run.kernels[m].name for m in ms))
                for ms in rows.members.values()
            ],
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
    times = _correction(run, rows).of(rows.raw.mean)
    members = list(rows.members.values())
    return tuple(m for row in (-times).argsort(kind="stable")[:top] for m in members[row])


def wall(run: Run) -> Mapping[str, float]:
    """Returns statistics of the runs without profiler that count, µs.

    `mean` is that of the bulk of them (see `tracer.support.measurements.bulk`).
    """
    summary = _of_walls(run)
    names = ("mean", "p50", "p90", "p95", "p99", "min", "max", "std")
    return {name: float(getattr(summary, name)[0]) for name in names}


def wall_interval(run: Run) -> tuple[float, float]:
    """Returns the 95 % confidence interval of the mean wall time, µs; a point for a single run."""
    summary = _of_walls(run)
    mean, half = float(summary.mean[0]), _finite(float(summary.ci95_half[0]))
    return max(mean - half, 0.0), mean + half


def empty(run: Run) -> float | None:
    """Returns the time of a run without nodes, µs; None if it was not measured."""
    summary = _of_empty(run)
    return None if summary is None else float(summary.mean[0])


def coverage(run: Run, nodes: pd.DataFrame) -> float:
    """Returns the sum of `time_us` ÷ mean wall time."""
    return float(nodes["time_us"].sum()) / wall(run)["mean"]


def notes(run: Run, groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns warnings: excluded runs, an unexpected overhead, rows within the overhead."""
    warnings = []
    counted = run.counted
    if counted.left_out and not counted.is_busy:
        warnings.append(
            f"{counted.left_out:,} of {plural(counted.total, 'run')}, profiled and unprofiled, "
            f"{agree(counted.left_out, 'is', 'are')} left out: something disturbed them"
        )
    warnings += _without_a_free_processor(run)
    rows = _rows(run, groups)
    correction = _correction(run, rows)
    warnings += _fit(run, rows, correction)
    times = wall(run)
    if run.has_undisturbed and len(counted.wall_us) > 1 and times["mean"] > 0:
        warnings.append(
            f"{TAILS}{times['p90']:,.1f} µs (p90), {times['p99']:,.1f} µs (p99) and "
            f"{times['max']:,.1f} µs at most; {1e6 / times['mean']:,.0f} runs per second"
        )
    short = int(_unresolved(rows, correction).sum())
    if short:
        every = "no row" if short == len(rows.bias) else f"{short:,} of {len(rows.bias):,} rows"
        cannot = "can" if short == len(rows.bias) else "cannot"
        warnings.append(
            f"{every} {cannot} be separated from profiler overhead: a time below the end of its "
            "confidence interval is all that is known, written as < 0.5"
        )
    return tuple(warnings)


def _unresolved(rows: _Rows, correction: Correction) -> npt.NDArray[np.bool_]:
    """Returns which rows cannot be told from the overhead of the profiler."""
    net = rows.raw.mean - correction.added
    unresolved: npt.NDArray[np.bool_] = (rows.bias > 0) & (net < _TELLING * correction.error)
    return unresolved


def _without_a_free_processor(run: Run) -> Iterator[str]:
    """Yields how far the time of a run varied, if its threads leave no processor free.

    Then whatever else runs for a moment, as this program between two runs, delays one of them.
    """
    threads = run.threads or (run.use.processors if run.use else 0)
    few = len(run.counted.wall_us) < _SEVERAL
    if run.is_on_device or run.use is None or few or threads < max(run.use.processors, 2):
        return
    medians = np.median(in_batches(run.counted.wall_us), axis=1)
    low, high = np.quantile(medians, [0.05, 0.95])
    if high - low > 2 * _VARIED * np.median(medians):
        yield (
            f"no processor is free beside {plural(threads, 'thread')}: the medians of parts of the "
            f"undisturbed runs range from {low:,.1f} to {high:,.1f} µs, and how long a run takes "
            "is not known better"
        )


def _fit(run: Run, rows: _Rows, correction: Correction) -> Iterator[str]:
    """Yields what does not fit together: the profiled runs, the undisturbed, and those of no node.

    A difference within the scatter of the undisturbed runs is not put down to the profiler.
    """
    total, bias = wall(run), float(rows.bias.sum())
    if not bias:
        return
    factor = correction.scale
    nodes = float(correction.of(rows.raw.mean).sum())
    rest, alone = total["mean"] - nodes, empty(run)
    if -rest > max(_UNEXPLAINED * total["mean"], total["std"]):
        yield (
            f"the nodes take {-rest:,.1f} µs more than a run without the profiler: the machine was "
            "slower in the profiled runs, and by how much in which node is not known"
        )
    elif not 1 / _NOTABLE <= factor <= _NOTABLE and abs(factor - 1) * bias > total["std"]:
        yield (
            f"profiler overhead was {factor:.2f} times the calibrated overhead, so times of a few "
            "µs are uncertain"
        )
    flat = not any(kernel.scope for kernel in run.kernels)
    rest -= _finite(run.returning_us)
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
    counted = run.counted
    settled = counted.samples
    calls = np.array([kernel.calls for kernel in run.kernels])
    clock = tick_error(settled, calls, run.tick_us) if run.tick_us else np.zeros(len(calls))
    single = np.zeros(len(calls)) if run.bias_error_us is None else run.bias_error_us
    errors: FloatArray = np.hypot(clock, single * calls)

    def by_row(values: FloatArray) -> FloatArray:
        """Sums the kernels (on the last axis) of each row."""
        order = np.array([each for positions in members.values() for each in positions], np.intp)
        starts = np.cumsum([0, *map(len, members.values())])[:-1]
        # float32 while it is recorded, float64 from a file; take() lays both out alike
        samples = values.take(order, axis=-1)
        sums: FloatArray = np.add.reduceat(samples, starts, axis=-1, dtype=np.float64)
        return sums

    return _Rows(
        members,
        by_row(run.bias_us * calls),
        np.sqrt(by_row(errors**2)),
        summarize(by_row(settled), run.tick_us, stalls=not counted.is_busy),
    )


def _correction(run: Run, rows: _Rows) -> Correction:
    """Adjusts the overhead so that the rows sum to the wall time less that of an empty run.

    An empty run that takes longer than what the rows leave of the wall is none of this run.
    """
    walls, alone = _of_walls(run), _of_empty(run)
    total, variance = float(walls.mean[0]) - _finite(run.returning_us), _variance(walls)
    is_bound = alone is None
    if alone is not None:
        left = total - float(np.maximum(rows.raw.mean - rows.bias, 0.0).sum())
        uncertain = _UNCERTAIN * float(rows.bias.sum()) + _TELLING * variance**0.5
        most = min(max(left, 0.0) + uncertain + _UNEXPLAINED * total, total)
        is_bound = float(alone.mean[0]) > most
        if not is_bound:
            total, variance = total - float(alone.mean[0]), variance + _variance(alone)
    target = Sum(max(total, 0.0), variance**0.5, bound=is_bound)
    return correct(rows.raw.mean, rows.bias, rows.error, target)


def _of_walls(run: Run) -> Summary:
    counted = run.counted
    return summarize(counted.wall_us.reshape(-1, 1), stalls=not counted.is_busy)


def _of_empty(run: Run) -> Summary | None:
    times = run.empty_us
    if times is None:
        return None
    # at full speed, as the undisturbed runs that count: else too much of these is in no node
    counted = times <= full_speed_us(times) if run.counted.is_busy else ~outliers(times)
    return summarize(times[counted].reshape(-1, 1))


def _variance(summary: Summary) -> float:
    """Returns the variance of the mean of a single column; 0 for a single time."""
    return (_finite(float(summary.ci95_half[0])) / _Z_975) ** 2


def _finite(value: float) -> float:
    """Returns a value, 0 for NaN."""
    return 0.0 if math.isnan(value) else value


def _sums(rows: _Rows, times: Sequence[float | None]) -> list[float]:
    """Returns the sum over the kernels of each row; NaN where no time was measured."""
    known = [[times[m] for m in members] for members in rows.members.values()]
    sums = [[time for time in each if time is not None] for each in known]
    return [float(sum(each)) if each else math.nan for each in sums]


def operation_table(profile: Profiled) -> pd.DataFrame:
    """Returns the node table of a model in its framework, operators in the order of first calls.

    The time of a row is the time of all its kernels; its `calls` are calls of the operator itself.
    `kernels` names the row and the kernels inside. The columns of work are missing.
    """
    run = profile.run
    times = timing(run, [(str(kernel.node),) for kernel in run.kernels])
    rows = [
        {
            "node": operation.node,
            "index": index,
            "op_type": operation.op_type,
            "domain": operation.domain,
            "module": operation.module,
            **run.key,
            "input_shapes": ", ".join(map(str, operation.inputs)) or None,
            "peak_bytes": operation.peak_bytes,
        }
        for index, operation in enumerate(profile.operations)
    ]
    table = pd.DataFrame(rows, index=[operation.node for operation in profile.operations])
    table = table.join(times.drop(columns=["calls", "kernels"]))
    # The first kernel of a row encloses the others. The name of the row makes the text unique.
    table["calls"] = pd.Series({str(kernel.node): kernel.calls for kernel in reversed(run.kernels)})
    inside: dict[str, dict[str, None]] = {}
    for kernel in run.kernels:
        inside.setdefault(str(kernel.node), {})[kernel.op_type] = None
    texts = {node: f"{node}: {', '.join(names)}" for node, names in inside.items()}
    table["kernels"] = pd.Series(texts)
    return typed_table(table)
