"""Join the rounds of one side into one run, in which each round is a sample.

A round is short, so a single disturbed inference would change its mean a lot. The time of a round
is therefore the median of its runs. The time of a kernel is the mean over the quieter half of the
runs: the profiler's clock counts whole µs, and a median could not separate 2.4 from 1.6. Profiler
overhead is subtracted from all rounds together, by `analyzers.timing`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analyzers.correction import tick_error
from analyzers.timing import timing
from tracer.records.trace import Run, Trace
from tracer.support.types import FloatArray

_SEPARATOR = "; "


def joined(rounds: Sequence[Trace]) -> Run:
    """Returns one run with a sample for each round; kernels are those of the first round."""
    runs = [trace.runs[0] for trace in rounds]
    names = [kernel.name for kernel in runs[0].kernels]
    empty = [np.median(run.empty_us) for run in runs if run.empty_us is not None]
    return replace(
        runs[0],
        wall_us=np.array([np.median(run.wall_us) for run in runs]),
        instrumented_us=np.array([np.median(run.instrumented_us) for run in runs]),
        samples=np.array([_quiet_samples(run, names).mean(axis=0) for run in runs]),
        bias_us=np.mean([_by_name(run, run.bias_us, names) for run in runs], axis=0),
        bias_error_us=_errors(runs, names),
        tick_us=0.0,  # bias_error_us includes the clock
        empty_us=np.array(empty) if len(empty) == len(runs) else None,
        replayed_us=None,
    )


def _errors(runs: Sequence[Run], names: Sequence[str]) -> FloatArray:
    """Returns the standard deviation of a call of each kernel, including the clock's part."""
    first = runs[0]
    calls = np.array([kernel.calls for kernel in first.kernels])
    single = np.zeros(len(names)) if first.bias_error_us is None else first.bias_error_us
    if not first.tick_us:
        return single
    samples = np.concatenate([_quiet_samples(run, names) for run in runs])
    clock = tick_error(samples, calls, first.tick_us) / np.maximum(calls, 1.0)
    errors: FloatArray = np.hypot(single, clock)
    return errors


def tabulated(rounds: Sequence[Trace]) -> FloatArray:
    """Returns the times in the node tables, by round and row of the first round (rounds × rows).

    Used for executors whose rows name no kernels and that need no correction for overhead.
    """
    keys = rounds[0].nodes["node"].tolist()
    tables = [trace.nodes.set_index("node")["time_us"].reindex(keys) for trace in rounds]
    times = np.array([table.to_numpy(np.float64, na_value=np.nan) for table in tables])
    untimed = np.isnan(times).all(axis=0)
    return np.where(np.isnan(times) & ~untimed, 0.0, times)  # a row that this round lacks


def corrected(run: Run, nodes: pd.DataFrame) -> pd.DataFrame:
    """Returns the columns of `timing` for each row of `nodes`, NaN for rows that name no kernel."""
    rows = _kernels_of(nodes, run)
    groups = _groups(nodes, rows, len(run.kernels))
    return timing(run, groups).reindex(nodes["node"].tolist())


def in_rounds(run: Run, nodes: pd.DataFrame, corrected: pd.DataFrame) -> FloatArray:
    """Returns the µs of each row of `nodes` by round (rounds × rows), NaN for untimed rows.

    Profiler overhead is subtracted as in the node table: the means are those of `corrected`.
    """
    times = np.full((len(run.samples), len(nodes)), np.nan)
    means = corrected["time_us"].to_numpy(np.float64, na_value=np.nan)
    for row, (kernels, mean) in enumerate(zip(_kernels_of(nodes, run), means, strict=True)):
        if kernels and not np.isnan(mean):
            raw = run.samples[:, kernels].sum(axis=1)
            times[:, row] = raw - raw.mean() + mean
    return times


def _quiet_samples(run: Run, names: Sequence[str]) -> FloatArray:
    """Returns the samples of kernels in the order of `names`, for the quieter half of the runs."""
    quiet = run.samples[run.instrumented_us <= np.median(run.instrumented_us)]
    by_name = {kernel.name: index for index, kernel in enumerate(run.kernels)}
    samples = np.zeros((len(quiet), len(names)))
    for column, name in enumerate(names):
        if name in by_name:
            samples[:, column] = quiet[:, by_name[name]]
    return samples


def _by_name(run: Run, values: FloatArray, names: Sequence[str]) -> list[float]:
    """Returns the values of kernels in the order of `names`, 0 for absent kernels."""
    by_name = dict(zip((kernel.name for kernel in run.kernels), values, strict=True))
    return [float(by_name.get(name, 0.0)) for name in names]


def _kernels_of(nodes: pd.DataFrame, run: Run) -> list[list[int]]:
    indices: dict[str, list[int]] = {}
    for index, kernel in enumerate(run.kernels):
        indices.setdefault(kernel.name, []).append(index)
    kernels = []
    for cell in nodes["kernels"].astype(object).where(nodes["kernels"].notna(), "").tolist():
        names = [cell] if cell in indices else str(cell).split(_SEPARATOR)
        kernels.append([index for name in names for index in indices.get(name, [])])
    return kernels


def _groups(
    nodes: pd.DataFrame, rows: Sequence[Sequence[int]], kernels: int
) -> list[tuple[str, ...]]:
    """Returns the rows of each kernel, as attributed; none for the runtime's own kernels.

    The row with the time of the kernel comes first.
    """
    keys_by_kernel: list[list[str]] = [[] for _ in range(kernels)]
    of_runtime, keys = nodes["index"].isna().tolist(), nodes["node"].tolist()
    for row in nodes["time_us"].isna().to_numpy().argsort(kind="stable"):
        for index in rows[row]:
            if not of_runtime[row]:
                keys_by_kernel[index].append(keys[row])
    return [tuple(members) for members in keys_by_kernel]
