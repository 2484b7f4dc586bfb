"""The roofline of each kernel: rates, share of the roof, and what limits it.

A kernel takes at least the time of its operations at the peak rate of arithmetic, and the time of
its bytes at the bandwidth of main memory; the longer time is its roof (Williams, Waterman,
Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures", CACM
52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracer.analyzers.timing import RUNTIME
from tracer.graph.operators import WHOLE_PRODUCTS, computes_in_integers
from tracer.records.columns import BY_NAME, COLUMNS
from tracer.records.environment import CPU, TF32, Peak, Peaks, queues
from tracer.records.trace import Kernel, Run, typed_table
from tracer.support.types import FloatArray

if TYPE_CHECKING:
    from tracer.executors.registry import Works

RATES = tuple(name for name in COLUMNS if BY_NAME[name].fold == "time_mean")
ROOF_COLUMNS = (*RATES, "roof_fraction", "bound")
COMPUTE, MEMORY = "compute", "memory"
CACHE, FEWER = "cache", "fewer ops"
"""Why a row is above the roof of memory, or that of arithmetic."""
INT8 = "int8"
ABOVE = 1.05
"""A row is above its roof from here on: peaks and times are not exact."""
_HOPELESS = 1.5
"""A time that is so far above the arithmetic roof, and cannot be, says nothing of a rate."""

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_RESOLUTION_US, _WIDEST = 0.1, 10
TIMES = ("time_us", "time_us_ci95_low", "time_us_ci95_high")


@dataclass(frozen=True, slots=True)
class TimedRow:
    """The nodes of a row, their time in µs, and the type that they compute in.

    `interval` is the 95 % interval of the time [default: the time is exact], and `macs` are the
    MACs that the kernel cannot leave out. Peaks of a card are for rows `on_card` alone.
    """

    key: str
    nodes: tuple[str, ...]
    time_us: float
    arithmetic: str
    interval: tuple[float, float] | None = None
    macs: float = 0.0
    on_card: bool = False

    @property
    def rated_us(self) -> float | None:
        """The time; None where it says nothing of a rate."""
        low, _ = self.interval or (self.time_us, self.time_us)
        return self.time_us if has_rate(low, self.time_us) else None


def has_rate(low_us: float, time_us: float) -> bool:
    """Whether a time, and the lower end of its interval, are long enough to tell a rate.

    A row below the resolution has no rate, no roof and no bound.
    """
    return low_us > _RESOLUTION_US and low_us * _WIDEST >= time_us


def rows(
    times: pd.DataFrame,
    run: Run,
    groups: Sequence[tuple[str, ...]],
    macs: Mapping[str, float] = MappingProxyType({}),
) -> tuple[TimedRow, ...]:
    """Returns the timed rows of `times`, the table of `analyzers.timing`, with all their nodes.

    `groups` are the nodes of each kernel of `run`, `macs` those that no kernel can leave out, by
    node. Kernels that the runtime added do no work of
    the model and are left out. Kernels that only queue their work have the time that it took on
    the device; 0 where that was not recorded, as a launch says nothing of rates.
    """
    labels = dict(zip(times.index, times["kernels"], strict=True))
    nodes: dict[str, dict[str, None]] = {}
    kinds: dict[str, dict[str, None]] = {}
    on_card = set()
    for kernel, group in zip(run.kernels, groups, strict=True):
        if group:
            label = str(labels[group[0]])
            if queues(kernel.provider):
                on_card.add(label)
            nodes.setdefault(label, {}).update(dict.fromkeys(group))
            kinds.setdefault(label, {})[arithmetic(kernel)] = None
    timed = times[times["time_us"].notna()]
    sums = timed.groupby("kernels", sort=False)[list(TIMES)].sum()
    total = {str(label): (time, low, high) for label, time, low, high in sums.itertuples()}
    if run.executor == "onnxruntime":
        queued = {kernel.name for kernel in run.kernels if queues(kernel.provider)}
        own = timed[timed["kernels"].isin(queued)]
        on_device = own.groupby("kernels", sort=False)["time_us_device"].sum()
        total |= {str(label): (time, time, time) for label, time in on_device.items()}
    types = {label: INT8 if INT8 in own else next(iter(own)) for label, own in kinds.items()}
    first = timed["kernels"].drop_duplicates()
    key_of = dict(zip(first, first.index, strict=True))
    return tuple(
        TimedRow(
            str(key_of[label]),
            tuple(members),
            total[label][0],
            # onnxruntime multiplies float32 in TF32 on a card by default
            TF32 if label in on_card and types[label] == "float32" else types[label],
            total[label][1:],
            max(macs.get(node, 0.0) for node in members),
            label in on_card,
        )
        for label, members in nodes.items()
        if label in total and not str(key_of[label]).startswith(f"{RUNTIME}:")
    )


def arithmetic(kernel: Kernel) -> str:
    """Returns the type a kernel computes in: `int8`, or its first floating-point type."""
    if computes_in_integers(kernel.op_type):
        return INT8
    return next((t.dtype for t in kernel.input_types if t.dtype in _FLOATS), _FLOATS[0])


def shown_peaks(peaks: Peaks, run: Run | None) -> Mapping[str, Peak]:
    """Returns the peaks of arithmetic that a chart of this run has, by type."""
    kinds = {"float32", TF32, *(arithmetic(kernel) for kernel in (run.kernels if run else ()))}
    return {kind: peak for kind, peak in peaks.arithmetic.items() if kind in kinds}


def roofline(
    timed: Sequence[TimedRow],
    flops: pd.Series[int],
    moved: Mapping[tuple[str, ...], int | None],
    peaks: Peaks | None,
) -> pd.DataFrame:
    """Returns `ROOF_COLUMNS` by row key: 10⁹ flop/s, 10⁹ bytes/s, and the roof.

    `flops` are per run by node, `moved` the bytes per run of each row's nodes. Unknown values are
    missing: all of a time without a rate; the roof without `peaks`, of a type that was not
    measured, and of a row without work. `roof_fraction` is the least possible time ÷ the time.
    """
    time = _floats([row.rated_us for row in timed])
    known = flops.dropna().to_dict()
    work = _floats(
        [
            float(sum(known[node] for node in row.nodes)) if known.keys() >= {*row.nodes} else None
            for row in timed
        ]
    )
    size = _floats([moved[row.nodes] for row in timed])
    table = pd.DataFrame(index=[row.key for row in timed])
    if peaks is not None:
        rates = {TF32: peaks.float32, **peaks.arithmetic}
        peak = _floats([rates[t.arithmetic].rate if t.arithmetic in rates else None for t in timed])
        computing = np.where(work == 0, 0.0, 1e6 * work / peak)
        moving = 1e6 * size / peaks.memory.rate
        least = np.maximum(computing, moving)  # NaN where one of them is not known
        # What cannot be is an error of the time: every peak is at least what a product has shown.
        products = 2e6 * _floats([row.macs for row in timed]) / peak
        longest = _floats([(row.interval or (0.0, row.time_us))[1] for row in timed])
        cannot = (computing <= ABOVE * longest) | (products > ABOVE * time)
        cannot &= computing > time
        time = np.where(cannot & (computing > _HOPELESS * time), np.nan, time)
        computes = computing >= moving
        fraction = np.where(cannot & computes, 1.0, least / time)
        limit, reason = np.where(computes, COMPUTE, MEMORY), np.where(computes, FEWER, CACHE)
        here = np.array([t.on_card or not peaks.card for t in timed], np.bool_)
        works = (least > 0) & ~np.isnan(time) & here
        table["roof_fraction"] = np.where(works, fraction, np.nan)
        bound = np.where(fraction > ABOVE, reason, limit)
        table["bound"] = pd.Series(bound, table.index).where(works)
    table["gflops_per_s"] = work / time / 1e3
    table["gbytes_per_s"] = size / time / 1e3
    return table.reindex(columns=list(ROOF_COLUMNS))


def reached_peaks(
    run: Run, groups: Sequence[tuple[str, ...]], macs: Mapping[str, float]
) -> dict[str, Peak]:
    """Returns the highest rate that the products of a run have surely had, by type.

    `groups` are the nodes of each kernel with the main node first, `macs` as in `rows`. The time is
    the median of what the profiler reported, overhead included, and one tick of its clock.
    """
    kernels: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        if group and group[0] in macs and run.executor == "onnxruntime":
            kernels.setdefault(group[0], []).append(position)
    highest: dict[str, Peak] = {}
    for node, positions in kernels.items():
        own = [run.kernels[position] for position in positions]
        if not all(each.provider == CPU and each.op_type in WHOLE_PRODUCTS for each in own):
            continue
        ticks = run.tick_us * sum(each.calls for each in own)
        time = float(np.median(run.samples[:, positions].sum(axis=1))) + ticks
        rate, kind = 2e6 * macs[node] / time if time > 0 else 0.0, arithmetic(own[0])
        if kind not in highest or rate > highest[kind].rate:
            types = " to ".join(str(t[0]) for t in (own[0].input_types, own[0].output_types) if t)
            highest[kind] = Peak(rate, f"{own[0].op_type}, {types}, in a profile")
    return highest


def _floats(values: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def averaged(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """Returns `ROOF_COLUMNS` of groups of rows: means over the time, and its main bound.

    Rows with a missing value do not count in its mean. A row above its roof counts as at its roof.
    """
    means = pd.DataFrame(index=pd.Index(rows[key].unique(), name=key))
    for column in ROOF_COLUMNS[:-1]:
        values = rows[column].clip(upper=1.0) if column == "roof_fraction" else rows[column]
        weight = rows["time_us"].where(values.notna())
        weighed = (values * weight).groupby(rows[key]).sum(min_count=1)
        means[column] = weighed / weight.groupby(rows[key]).sum(min_count=1)
    by_bound = rows.groupby([key, "bound"])["time_us"].sum().sort_values(ascending=False)
    means["bound"] = by_bound.reset_index().drop_duplicates(key).set_index(key)["bound"]
    return means


def notes(peaks: Peaks | None) -> tuple[str, ...]:
    """Returns warnings about the peaks of a run."""
    if peaks is None or not peaks.is_busy:
        return ()
    return (
        f"the peaks may be too low, because other programs took {1 - peaks.cpu_share:.0%} of the "
        "CPU while they were measured: repeat with tracer env --peaks",
    )


def with_roofs(table: pd.DataFrame, works: Works, peaks: Peaks | None) -> pd.DataFrame:
    """Returns the node table with the columns of work and roofs, of rows whose work is known.

    A row without products is held against the memory alone.
    """
    if not works:
        return table
    rows = table[table["node"].isin(list(works)) & table["time_us"].notna()]
    lows, highs = (rows[f"time_us_ci95_{end}"].fillna(rows["time_us"]) for end in ("low", "high"))
    times = zip(rows["node"], rows["time_us"], lows, highs, strict=True)
    timed = [
        TimedRow(
            node, (node,), us, works[node].arithmetic, (low, high), works[node].flops / 2, True
        )
        for node, us, low, high in times
    ]
    flops = pd.Series({node: work.flops for node, work in works.items()})
    moved: dict[tuple[str, ...], int | None]
    moved = {(node,): work.bytes_read + work.bytes_written for node, work in works.items()}
    roofs = roofline(timed, flops, moved, peaks)
    work = pd.DataFrame(
        {
            node: {
                "macs": each.flops // 2,
                "flops": each.flops or None,  # what is no product was not counted
                "bytes_read": each.bytes_read,
                "bytes_written": each.bytes_written,
            }
            for node, each in works.items()
        }
    ).T.astype("Float64")
    work["intensity"] = work["flops"] / (work["bytes_read"] + work["bytes_written"])
    roofs["gflops_per_s"] = roofs["gflops_per_s"].where(roofs["gflops_per_s"] > 0)
    table = table.copy()
    for name, values in (*work.items(), *roofs.items()):
        table[name] = table["node"].map(values)
    return typed_table(table)
