"""Rounds of one side as one run, in which every round is one sample.

A round is short, and a single disturbed inference would be a large part of its mean. So the time
of whole runs is their median; that of a kernel the mean over the quieter half of the runs, for a
profiler's clock counts whole µs, and a median of whole numbers would not tell 2.4 from 1.6. What
the profiler costs is taken off the rounds together, by `analyzers.timing`.
"""

from __future__ import annotations

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
    """The run of a round for each inference; kernels are those of the first round."""
    runs = [trace.runs[0] for trace in rounds]
    names = [kernel.name for kernel in runs[0].kernels]
    empty = [np.median(run.empty_us) for run in runs if run.empty_us is not None]
    return replace(
        runs[0],
        wall_us=np.array([np.median(run.wall_us) for run in runs]),
        instrumented_us=np.array([np.median(run.instrumented_us) for run in runs]),
        samples=np.array([_quiet_means(run, names) for run in runs], np.float64),
        bias_us=np.mean([_by_name(run, run.bias_us, names) for run in runs], axis=0),
        bias_error_us=_errors(runs, names),
        tick_us=0.0,  # it is in the errors: the means of rounds no longer tell what the clock cut
        empty_us=np.array(empty) if len(empty) == len(runs) else None,
        replayed_us=None,
    )


def _errors(runs: Sequence[Run], names: Sequence[str]) -> FloatArray:
    """Standard deviation of what is not known of a call of each kernel, the clock's part in it."""
    first = runs[0]
    calls = np.array([kernel.calls for kernel in first.kernels])
    single = np.zeros(len(names)) if first.bias_error_us is None else first.bias_error_us
    if not first.tick_us:
        return single
    samples = np.concatenate([_columns(run, names) for run in runs])
    clock = tick_error(samples, calls, first.tick_us) / np.maximum(calls, 1.0)
    found: FloatArray = np.hypot(single, clock)
    return found


def told(rounds: Sequence[Trace]) -> FloatArray:
    """Time of each row of the first round in each round (rounds × rows), as their tables have it.

    For executors whose rows do not name their kernels, and that have no profiler to correct for.
    """
    keys = list(rounds[0].nodes["node"])
    tables = [trace.nodes.set_index("node")["time_us"].reindex(keys) for trace in rounds]
    found = np.array([table.to_numpy(np.float64, na_value=np.nan) for table in tables])
    untimed = np.isnan(found).all(axis=0)
    return np.where(np.isnan(found) & ~untimed, 0.0, found)  # a row that one round did without


def corrected(run: Run, nodes: pd.DataFrame) -> pd.DataFrame:
    """The columns of `timing` for each row of `nodes`, NaN for rows that name no kernel."""
    rows = _kernels_of(nodes, run)
    groups = _groups(nodes, rows, len(run.kernels))
    return timing(run, groups).reindex(list(nodes["node"]))


def in_rounds(run: Run, nodes: pd.DataFrame, corrected: pd.DataFrame) -> FloatArray:
    """Time of each row of `nodes` in each round (rounds × rows), µs, NaN for rows without one.

    The profiler's cost is taken off as in the node table: their mean is that of `corrected`.
    """
    found = np.full((len(run.samples), len(nodes)), np.nan)
    for place, kernels in enumerate(_kernels_of(nodes, run)):
        mean = float(corrected["time_us"].iloc[place])
        if kernels and not np.isnan(mean):
            raw = run.samples[:, kernels].sum(axis=1)
            found[:, place] = raw - raw.mean() + mean
    return found


def _quiet_means(run: Run, names: Sequence[str]) -> Sequence[float]:
    quiet = run.instrumented_us <= np.median(run.instrumented_us)
    return _by_name(run, run.samples[quiet].mean(axis=0, dtype=np.float64), names)


def _columns(run: Run, names: Sequence[str]) -> FloatArray:
    """Samples of kernels in the order of `names`, for the quieter half of the runs."""
    quiet = run.samples[run.instrumented_us <= np.median(run.instrumented_us)]
    known = {kernel.name: place for place, kernel in enumerate(run.kernels)}
    columns = [quiet[:, known[n]] if n in known else np.zeros(len(quiet)) for n in names]
    return np.column_stack(columns).astype(np.float64)


def _by_name(run: Run, values: FloatArray, names: Sequence[str]) -> list[float]:
    """Values of kernels in the order of `names`, 0 for one that a round did without."""
    known = dict(zip((kernel.name for kernel in run.kernels), values, strict=True))
    return [float(known.get(name, 0.0)) for name in names]


def _kernels_of(nodes: pd.DataFrame, run: Run) -> list[list[int]]:
    """Places of the kernels that each row names."""
    places: dict[str, list[int]] = {}
    for place, kernel in enumerate(run.kernels):
        places.setdefault(kernel.name, []).append(place)
    found = []
    for cell in nodes["kernels"].astype(object).where(nodes["kernels"].notna(), ""):
        names = [cell] if cell in places else str(cell).split(_SEPARATOR)
        found.append([place for name in names for place in places.get(name, [])])
    return found


def _groups(
    nodes: pd.DataFrame, rows: Sequence[Sequence[int]], kernels: int
) -> list[tuple[str, ...]]:
    """The rows of each kernel, as attribution had them; none for the runtime's own."""
    found: list[list[str]] = [[] for _ in range(kernels)]
    own = nodes["index"].isna()
    for place, (key, positions) in enumerate(zip(nodes["node"], rows, strict=True)):
        for position in positions:
            if not own.iloc[place]:
                found[position].append(str(key))
    return [tuple(keys) for keys in found]
