"""Join the sessions of one side into one run, in which each session is a sample.

The runs of a turn are few, so a single disturbed one would change their mean a lot: the time of a
kernel in a turn is the mean over the quieter half of its runs. The profiler's clock counts whole
µs, and a median could not separate 2.4 from 1.6. Profiler overhead is subtracted from all sessions
together, by `tracer.analyzers.timing`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracer.analyzers.correction import tick_error
from tracer.analyzers.timing import timing
from tracer.records.trace import Kernel, Run
from tracer.records.turns import Turns
from tracer.support.statistics import middle_mean
from tracer.support.types import FloatArray

_SEPARATOR = "; "


@dataclass(frozen=True, slots=True)
class Kernels:
    """The times of the kernels of one side in µs, as the profiler tells them.

    `turns` (turns × kernels) has an array for each session; `runs` (runs × kernels) has the quieter
    runs of all turns. Kernels are those of the first run, in order.
    """

    turns: tuple[FloatArray, ...]
    runs: FloatArray


def of_run(run: Run) -> Turns:
    """Returns a session whose only turn has all profiled runs of `run`, and the undisturbed ones.

    It is for sides that took no turns.
    """
    names = tuple(kernel.name for kernel in run.kernels)
    return Turns(names, run.samples[None], run.instrumented_us[None], run.wall_us, run.empty_us)


def kernels_of(sessions: Sequence[Turns], kernels: Sequence[Kernel]) -> Kernels:
    """Returns the times of `kernels` in the turns of the sessions.

    Of several kernels of one name the first has the times of all.
    """
    quiet = [_quiet(session, kernels) for session in sessions]
    turns = tuple(np.array([runs.mean(axis=0) for runs in session]) for session in quiet)
    return Kernels(turns, np.concatenate([runs for session in quiet for runs in session]))


def joined(first: Run, sessions: Sequence[Turns], times: Kernels) -> Run:
    """Returns the run `first` with a sample for each session instead of its own."""
    empty = [np.median(each.empty_us) for each in sessions if each.empty_us is not None]
    return replace(
        first,
        wall_us=np.array([np.median(each.wall_us) for each in sessions]),
        instrumented_us=np.array([np.median(each.profiled_us) for each in sessions]),
        samples=np.array([middle_mean(turns) for turns in times.turns]),
        bias_error_us=_errors(first, times.runs),
        tick_us=0.0,  # bias_error_us includes the clock
        empty_us=np.array(empty) if len(empty) == len(sessions) else None,
        replayed_us=None,
        returning_us=math.nan,
        use=None,
    )


def corrected(run: Run, nodes: pd.DataFrame, rows: Sequence[Sequence[int]]) -> pd.DataFrame:
    """Returns the columns of `timing` for each row of `nodes`, NaN for rows without kernels.

    `rows` are the kernels of each row.
    """
    groups = _groups(nodes, rows, len(run.kernels))
    return timing(run, groups).reindex(nodes["node"].tolist())


def by_row(values: FloatArray, rows: Sequence[Sequence[int]]) -> FloatArray:
    """Returns the sums over the kernels (last axis) of each row, NaN for rows without kernels."""
    sums = np.full((*values.shape[:-1], len(rows)), np.nan)
    for row, kernels in enumerate(rows):
        if kernels:
            sums[..., row] = values[..., kernels].sum(axis=-1)
    return sums


def kernels_of_rows(nodes: pd.DataFrame, run: Run) -> list[list[int]]:
    """Returns the kernels of each row of the node table of `run`, by their places.

    Rows of an ONNX model name their kernels; in a framework, kernels name their row.
    """
    by_name: dict[str, list[int]] = {}
    by_node: dict[str | None, list[int]] = {}
    for place, kernel in enumerate(run.kernels):
        by_name.setdefault(kernel.name, []).append(place)
        by_node.setdefault(kernel.node, []).append(place)
    cells = nodes["kernels"].astype(object).where(nodes["kernels"].notna(), "").tolist()
    rows = []
    for node, cell in zip(nodes["node"].tolist(), cells, strict=True):
        names = [cell] if cell in by_name else str(cell).split(_SEPARATOR)
        kernels = [place for name in names for place in by_name.get(name, [])]
        rows.append(kernels or (by_node.get(node, []) if cell else []))
    return rows


def _quiet(session: Turns, kernels: Sequence[Kernel]) -> list[FloatArray]:
    """Returns for each turn the quieter half of its runs (runs × kernels)."""
    places: dict[str, int] = {}
    for place, kernel in enumerate(kernels):
        places.setdefault(kernel.name, place)
    samples = np.zeros((*session.samples_us.shape[:2], len(kernels)))
    for column, name in enumerate(session.kernels):
        if name in places:
            samples[:, :, places[name]] += session.samples_us[:, :, column]
    medians = np.median(session.profiled_us, axis=1, keepdims=True)
    return [
        runs[quiet] for runs, quiet in zip(samples, session.profiled_us <= medians, strict=True)
    ]


def _errors(run: Run, samples: FloatArray) -> FloatArray:
    """Returns the standard deviation of a call of each kernel, including the clock's part."""
    calls = np.array([kernel.calls for kernel in run.kernels])
    single = np.zeros(len(calls)) if run.bias_error_us is None else run.bias_error_us
    if not run.tick_us:
        return single
    clock = tick_error(samples, calls, run.tick_us) / np.maximum(calls, 1.0)
    errors: FloatArray = np.hypot(single, clock)
    return errors


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
