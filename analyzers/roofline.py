"""The roofline of each kernel: rates, share of the roof, and whether compute or memory limits it.

A kernel takes at least the time of its operations at the peak rate of arithmetic, and the time of
its bytes at the bandwidth of main memory; the longer time is its roof (Williams, Waterman,
Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures", CACM
52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analyzers.timing import RUNTIME
from tracer.graph.quantized import computes_in_integers
from tracer.records.columns import BY_NAME, COLUMNS
from tracer.records.environment import Peaks
from tracer.records.providers import queues
from tracer.records.trace import Kernel, Run
from tracer.support.types import FloatArray

RATES = tuple(name for name in COLUMNS if BY_NAME[name].fold == "time_mean")
ROOF_COLUMNS = (*RATES, "bound")
COMPUTE, MEMORY = "compute", "memory"
INT8 = "int8"

_FLOATS = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True, slots=True)
class TimedRow:
    """The nodes of a row, their time in µs, and the type that they compute in."""

    key: str
    nodes: tuple[str, ...]
    time_us: float
    arithmetic: str


def rows(times: pd.DataFrame, run: Run, groups: Sequence[tuple[str, ...]]) -> tuple[TimedRow, ...]:
    """Returns the timed rows of `times`, the table of `analyzers.timing`, with all their nodes.

    `groups` are the nodes of each kernel of `run`. Kernels that the runtime added do no work of
    the model and are left out. Kernels that only queue their work have the time that it took on
    the device; 0 where that was not recorded, as a launch says nothing of rates.
    """
    labels = dict(zip(times.index, times["kernels"], strict=True))
    nodes: dict[str, dict[str, None]] = {}
    kinds: dict[str, dict[str, None]] = {}
    for kernel, group in zip(run.kernels, groups, strict=True):
        if group:
            label = str(labels[group[0]])
            nodes.setdefault(label, {}).update(dict.fromkeys(group))
            kinds.setdefault(label, {})[arithmetic(kernel)] = None
    timed = times[times["time_us"].notna()]
    total = timed.groupby("kernels", sort=False)["time_us"].sum().to_dict()
    total |= _on_device(timed, run)
    first = timed["kernels"].drop_duplicates()
    key_of = dict(zip(first, first.index, strict=True))
    return tuple(
        TimedRow(
            str(key_of[label]),
            tuple(members),
            float(total[label]),
            INT8 if INT8 in kinds[label] else next(iter(kinds[label])),
        )
        for label, members in nodes.items()
        if label in total and not str(key_of[label]).startswith(f"{RUNTIME}:")
    )


def _on_device(timed: pd.DataFrame, run: Run) -> dict[Hashable, float]:
    """Returns the times on the device of the kernels that a provider of onnxruntime queues."""
    if run.executor != "onnxruntime":
        return {}
    queued = {kernel.name for kernel in run.kernels if queues(kernel.provider)}
    own = timed[timed["kernels"].isin(queued)]
    return own.groupby("kernels", sort=False)["time_us_device"].sum().to_dict()


def arithmetic(kernel: Kernel) -> str:
    """Returns the type a kernel computes in: `int8`, or its first floating-point type."""
    if computes_in_integers(kernel.op_type):
        return INT8
    return next((t.dtype for t in kernel.input_types if t.dtype in _FLOATS), _FLOATS[0])


def roofline(
    timed: Sequence[TimedRow],
    flops: pd.Series[int],
    moved: Mapping[tuple[str, ...], int | None],
    peaks: Peaks | None,
) -> pd.DataFrame:
    """Returns `ROOF_COLUMNS` by row key: 10⁹ flop/s, 10⁹ bytes/s, and the roof.

    `flops` are per run by node, `moved` the bytes per run of each row's nodes. Unknown values are
    missing: rates of a time of 0; the roof without `peaks`, of a type that was not measured, and
    of a row without work. `roof_fraction` is the least possible time ÷ the time; it exceeds 1 if
    data comes from a cache, which is faster than main memory.
    """
    time = _floats([row.time_us if row.time_us > 0 else None for row in timed])
    known = flops.dropna().to_dict()
    work = _floats([_total(known, row.nodes) for row in timed])
    size = _floats([moved[row.nodes] for row in timed])
    table = pd.DataFrame(index=[row.key for row in timed])
    table["gflops_per_s"] = work / time / 1e3
    table["gbytes_per_s"] = size / time / 1e3
    if peaks is None:
        return table.reindex(columns=list(ROOF_COLUMNS))
    rates = _rates(peaks)
    peak = _floats([rates.get(row.arithmetic) for row in timed])
    computing = np.where(work == 0, 0.0, 1e6 * work / peak)
    moving = 1e6 * size / peaks.memory.rate
    least = np.maximum(computing, moving)  # NaN where one of them is not known
    works = least > 0
    table["roof_fraction"] = np.where(works, least / time, np.nan)
    longer = pd.Series(np.where(computing >= moving, COMPUTE, MEMORY), table.index)
    table["bound"] = longer.where(works)
    return table


def _rates(peaks: Peaks) -> Mapping[str, float]:
    rates = {"float32": peaks.float32.rate}
    return rates if peaks.int8 is None else {**rates, INT8: peaks.int8.rate}


def _total(flops: Mapping[Hashable, int], nodes: Sequence[str]) -> float | None:
    return float(sum(flops[node] for node in nodes)) if all(n in flops for n in nodes) else None


def _floats(values: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def averaged(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """Returns `ROOF_COLUMNS` of groups of rows: means over the time, and its main bound.

    Rows with a missing value do not count in its mean.
    """
    means = pd.DataFrame(index=pd.Index(rows[key].unique(), name=key))
    for column in RATES:
        weight = rows["time_us"].where(rows[column].notna())
        weighed = (rows[column] * weight).groupby(rows[key]).sum(min_count=1)
        means[column] = weighed / weight.groupby(rows[key]).sum(min_count=1)
    by_bound = rows.groupby([key, "bound"])["time_us"].sum().sort_values(ascending=False)
    means["bound"] = by_bound.reset_index().drop_duplicates(key).set_index(key)["bound"]
    return means


def notes(table: pd.DataFrame, peaks: Peaks | None) -> tuple[str, ...]:
    """Returns warnings about the roofs of a node table."""
    if peaks is None:
        return ()
    if peaks.is_busy:
        return (
            f"the peaks may be too low, because other programs took {1 - peaks.cpu_share:.0%} of "
            "the CPU while they were measured: repeat with tracer env --peaks",
        )
    warnings = []
    above = table[table["roof_fraction"] > 1]
    for bound, why in _ABOVE.items():
        rows = above[above["bound"] == bound]
        if len(rows):
            most = rows["roof_fraction"].max()
            some = f"{len(rows):,} of {len(table):,} rows {'is' if len(rows) == 1 else 'are'}"
            warnings.append(f"{some} above the {bound} roof, up to {most:.1f}x: {why}")
    return tuple(warnings)


_ABOVE = {
    MEMORY: "data in a cache, which is faster than main memory",
    COMPUTE: "an algorithm with fewer operations (e.g. Winograd), or a measured peak that is too "
    "low (tracer env --peaks repeats it)",
}
