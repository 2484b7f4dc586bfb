"""Which runs count: those that nothing disturbed.

Three things are told apart. In a *disturbed* run the system took the processor from the program for
more than 1 % of its time. An *outlier* is far above the median, for a reason that the system does
not tell. While other programs compute, the processors of most machines are also slower from run to
run (shared caches, clock rate): then only the runs at the usual full speed count.
"""

from dataclasses import dataclass

import numpy as np

from tracer.support.types import BoolArray, FloatArray
from tracer.text import agree, plural

_WAITED = 0.01
"""Share of a run without a processor from which on it is disturbed."""

_BUSY = 0.1
"""Share of the processors that others used, or of the runs disturbed, that makes a busy machine."""

_LEAST_CLEAN, _LEAST_CLEAN_SHARE = 5, 0.05
"""Fewer runs without a disturbance than these are too few, and all runs count."""

_FULL_SPEED, _SLOWER, _TICKS = 0.05, 0.035, 2.0
"""A run at full speed takes at most so much more than the fastest 5 %, and two ticks of a clock."""

_CAP, _CAP_TICKS = 1.5, 3.0
"""A kernel counts for the speed of its run with at most this multiple of its median, and ticks: a
stall in one kernel is no slow run."""

_USUAL = 0.25
"""Quantile of the samples of a kernel that is free of waits, unless the kernel is long."""
_STRETCH_US = 1000.0
"""A program has a processor for about so long at a stretch: longer kernels may wait in all runs."""

_OUTLIER_DEVIATIONS = 10.0
_MAD_TO_SIGMA = 1.4826
_OUTLIER_SHARE = 1.5
_MOST_OUTLIERS = 0.2
_CLOCK_TICK_US = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What the system counted in each run: involuntary context switches, processor time (µs)."""

    switches: FloatArray
    cpu_us: FloatArray

    def disturbed(self, times: FloatArray) -> BoolArray:
        """Returns which runs waited for a processor that another program had.

        A run of one thread uses its processor all the time, and threads that wait for each other
        spin: so processor time ÷ time is that of the best runs, or some thread waited.
        """
        ratio = self.cpu_us / np.maximum(times, 1e-3)
        best = max(1.0, float(np.quantile(ratio, 0.9)))
        waited: BoolArray = (self.switches > 0) & (ratio < (1 - _WAITED) * best)
        return waited

    def without_waits(self, times: FloatArray) -> FloatArray:
        """Returns times in which a disturbed run has its processor time, where that is shorter."""
        return np.where(self.disturbed(times), np.minimum(times, self.cpu_us), times)


@dataclass(frozen=True, slots=True)
class MachineUse:
    """How busy the machine was: usage of the undisturbed and the recorded runs.

    `others` is the share of the `processors` of this process that other programs used meanwhile;
    None if unknown.
    """

    wall: Usage
    profiled: Usage
    processors: int
    others: float | None = None


@dataclass(frozen=True, slots=True)
class CountedRuns:
    """The times of the undisturbed runs that count, µs, and the mask of recorded runs that do.

    `samples` are the times of kernels in the latter (runs × kernels), µs. `disturbed` is the number
    of disturbed runs of both kinds, and `total` that of all. With `few`, hardly any run was clean:
    disturbed runs count as well, without the time that they waited.
    """

    wall_us: FloatArray
    profiled: BoolArray
    samples: FloatArray
    total: int
    disturbed: int
    others: float | None
    is_busy: bool
    few: bool

    @property
    def left_out(self) -> int:
        """The number of runs of both kinds that do not count."""
        return self.total - len(self.wall_us) - int(self.profiled.sum())

    def sentence(self) -> str | None:
        """Says that the machine was busy, and what became of the disturbed runs; else None."""
        if not self.is_busy:
            return None
        count = self.disturbed if self.few else self.left_out
        what = f"{count:,} of {plural(self.total, 'run')} {agree(count, 'was', 'were')} disturbed"
        nearly = ", nearly all" * (2 * count > self.total)
        what += (
            f"{nearly}: times are of the least disturbed" if self.few else " or slowed and left out"
        )
        if self.others is None:
            return f"busy machine: {what}"
        return f"busy machine: other programs used {self.others:.0%} of the processors; {what}"


def counted_runs(
    wall_us: FloatArray, profiled_us: FloatArray, samples: FloatArray, use: MachineUse | None
) -> CountedRuns:
    """Returns which runs count; `samples` are the times of kernels (runs × kernels), µs.

    Without `use`, only outliers do not.
    """
    total = len(wall_us) + len(profiled_us)
    if use is None:
        settled, profiled = wall_us[~outliers(wall_us)], ~outliers(profiled_us)
        return CountedRuns(settled, profiled, samples[profiled], total, 0, None, False, False)
    both = (wall_us, use.wall), (profiled_us, use.profiled)
    disturbed = [usage.disturbed(times) for times, usage in both]
    count = int(sum(each.sum() for each in disturbed))
    is_busy = count >= _BUSY * total or (use.others or 0.0) >= _BUSY
    undelayed = use.wall.without_waits(wall_us)
    waits_us = profiled_us - use.profiled.without_waits(profiled_us)
    samples = _without_waits(samples, waits_us)
    masks, few = [], False
    # the time of each run in its kernels, without stalls of single kernels
    middle = np.median(samples, axis=0) if samples.shape[1] else 0.0
    in_kernels = np.minimum(samples, _CAP * middle + _CAP_TICKS).sum(axis=1)
    for times, slow, speed in zip(
        (wall_us, profiled_us), disturbed, (undelayed, in_kernels), strict=True
    ):
        clean = ~slow
        if clean.sum() < max(_LEAST_CLEAN, _LEAST_CLEAN_SHARE * len(clean)):
            few = few or bool(slow.any())
            clean = np.ones_like(slow)
        elif not is_busy:
            clean[clean] = ~outliers(times[clean])
        if is_busy:  # then those about as fast as the fastest of them
            clean = clean & (speed <= full_speed_us(speed[clean]))
        masks.append(clean)
    wall_us, samples = undelayed[masks[0]], samples[masks[1]]
    return CountedRuns(wall_us, masks[1], samples, total, count, use.others, is_busy, few)


def full_speed_us(times: FloatArray) -> float:
    """Returns the longest of the times at which a run had full speed; some had in any case."""
    fastest = float(np.quantile(times, _FULL_SPEED))
    least = float(np.sort(times)[:_LEAST_CLEAN].max())
    return max((1 + _SLOWER) * fastest, fastest + _TICKS * _CLOCK_TICK_US, least)


def _without_waits(samples: FloatArray, waits_us: FloatArray) -> FloatArray:
    """Returns samples (runs × kernels) less the time that each run waited for a processor.

    It waited in the kernels that took longer than usual and, where that does not explain all of the
    wait, in those that are longer than a program has its processor at a stretch.
    """
    if not waits_us.any() or not samples.size:
        return samples
    usual = np.quantile(samples, _USUAL, axis=0)
    for least in (usual, _STRETCH_US):
        waited = np.maximum(samples - least, 0.0)
        in_all = np.maximum(waited.sum(axis=1), 1e-9)
        taken_us = np.minimum(waits_us, in_all)
        samples = samples - waited * (taken_us / in_all)[:, None]
        waits_us = waits_us - taken_us
    return samples


def outliers(values: FloatArray) -> BoolArray:
    """Which runs (µs) something disturbed: far above the median by spread and by share.

    The spread is robust (median absolute deviation), and never below a tick of a clock that
    counts whole µs. If more than a fifth of the runs are so slow, none is an outlier: the machine
    has two speeds, and other runs were left in whose median is the slow one.
    """
    median = float(np.median(values))
    spread = max(_MAD_TO_SIGMA * float(np.median(np.abs(values - median))), _CLOCK_TICK_US)
    limit = max(median + _OUTLIER_DEVIATIONS * spread, _OUTLIER_SHARE * median)
    slow: BoolArray = values > limit
    return slow if slow.mean() <= _MOST_OUTLIERS else np.zeros_like(slow)
