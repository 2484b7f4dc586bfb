"""Times calls, in µs, summarises repeated measurements, and says how far to trust them.

An involuntary context switch is the system's word that another program took the processor.
Processor time that is shorter than a run says for how long. Both are known on Unix alone.

The functions of the normal distribution and of Student's t, good to seven digits and more, are
what tracer would need scipy for, which takes 140 MB of disk and 0.2 s to import.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tracer.support.types import FloatArray

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

HAS_USAGE = resource is not None
"""Whether the system counts the context switches of a process."""
_STAT = Path("/proc/stat")
_TICKS = 8
"""Fields of a processor's line: user, nice, system, idle, iowait, irq, softirq, steal. Those behind
them are counted in the first two as well."""
_IDLE = slice(3, 5)
_STEAL = 7
SPINNING_S = 0.05
"""Time after which the threads of a pool sleep: they spin for 30 ms and more after a run, on the
cores that the next session needs."""


def elapsed_us(call: Callable[[], object], clock: Callable[[], int] | None = None) -> float:
    """Returns the wall time of one call, in µs, by a clock that counts ns."""
    clock = clock or time.perf_counter_ns
    start = clock()
    call()
    return (clock() - start) / 1e3


def times_us(call: Callable[[], object], count: int, warmup: int = 0) -> list[float]:
    """Returns the wall time of each of `count` calls, in µs, after `warmup` untimed calls."""
    for _ in range(warmup):
        call()
    return [elapsed_us(call) for _ in range(count)]


@dataclass
class RunTimer:
    """Times of runs, µs, and what the system counted in each: switches and processor time, µs."""

    us: list[float] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def time(self, run: Callable[[], object]) -> None:
        """Makes and times a run."""
        self.take(lambda: elapsed_us(run))

    def take(self, timed_run: Callable[[], float]) -> None:
        """Makes a run that returns its time, µs."""
        switches, cpu_us = usage()
        us = timed_run()
        after, cpu_after_us = usage()
        self.us.append(us)
        self.switches.append(after - switches)
        self.cpu_us.append(cpu_after_us - cpu_us)

    def add(self, other: "RunTimer", rows: Sequence[int]) -> None:
        """Adds the runs of `other` at these positions."""
        self.us += [other.us[row] for row in rows]
        self.switches += [other.switches[row] for row in rows]
        self.cpu_us += [other.cpu_us[row] for row in rows]


def usage() -> tuple[int, float]:
    """Returns this process's involuntary context switches and processor time (µs) so far."""
    if resource is None:
        return 0, 0.0
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nivcsw, (used.ru_utime + used.ru_stime) * 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """What took processors from this process meanwhile; None where the system does not tell.

    `others` is the share of all processors' time that other programs used, `stolen` the share that
    the host of a virtual machine kept for others. `interruptions` counts how often another program
    took the processor of a running thread.
    """

    others: float | None
    stolen: float | None
    interruptions: int | None


@dataclass(frozen=True, slots=True)
class Moment:
    """The counters of the system at one time, in seconds of all processors."""

    own: float
    total: float | None
    busy: float
    stolen: float
    interruptions: int | None

    @classmethod
    def now(cls) -> "Moment":
        """Reads the counters."""
        switches = None if resource is None else usage()[0]
        own = time.process_time()
        try:
            fields = _STAT.read_text(encoding="ascii").split(None, _TICKS + 1)[1 : _TICKS + 1]
            seconds = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
        except (OSError, ValueError):  # not Linux
            return cls(own, None, 0.0, 0.0, switches)
        total, stolen = sum(seconds), seconds[_STEAL]
        return cls(own, total, total - sum(seconds[_IDLE]) - stolen, stolen, switches)

    def until_now(self) -> Load:
        """Returns the load since this moment."""
        now = Moment.now()
        switches = None
        if self.interruptions is not None and now.interruptions is not None:
            switches = now.interruptions - self.interruptions
        total = 0.0 if self.total is None or now.total is None else now.total - self.total
        if total <= 0:
            return Load(None, None, switches)
        others = now.busy - self.busy - (now.own - self.own)
        return Load(max(0.0, others / total), (now.stolen - self.stolen) / total, switches)


_Scalar = TypeVar("_Scalar", bound=np.generic)

BATCHES = 30
"""Most batches of consecutive runs whose means count as independent measurements."""

_LOW, _LOWEST = 0.25, 0.05
_LOW_TO_SIGMA = 1 / (1.645 - 0.674)
"""Distance of these quantiles of a normal distribution, in standard deviations."""
_REACH = 3.7
"""Standard deviations from the lower quartile to the end of the bulk: 3 beyond the median."""
_LEAST_SIGMA = 0.02
"""Least standard deviation that is assumed, as a share of the lower quartile: runs that are a
tenth slower than it are of the bulk in no case."""

_erfc = np.frompyfunc(math.erfc, 1, 1)
_inverse = np.frompyfunc(NormalDist().inv_cdf, 1, 1)
_NORMAL = 1e8
"""Degrees of freedom from which on the two distributions agree to seven digits."""
_LEAST = 5e-324
_STEPS = 10_000
"""More than any sum or search needs: the fraction takes about the root of the degrees."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One array per figure, an entry a column of the samples, in the samples' unit.

    `mean` is that of the bulk of the samples (see `bulk`), and `ci95_half` half its 95 % confidence
    interval. The other figures are of all samples, or of the bulk alone.
    """

    mean: FloatArray
    p50: FloatArray
    p90: FloatArray
    p95: FloatArray
    p99: FloatArray
    min: FloatArray
    max: FloatArray
    std: FloatArray
    ci95_half: FloatArray


def summarize(samples: FloatArray, tick: float = 0.0, stalls: bool = True) -> Summary:
    """Summary of each column of `samples` (runs × columns), by a clock of whole `tick`s.

    Without `stalls`, all figures are of the bulk.
    """
    usual, one = bulk(samples, tick), len(samples) < 2
    shown = samples if stalls else np.where(usual, samples, np.nan)
    least, most = np.nanmin(shown, axis=0), np.nanmax(shown, axis=0)
    # of NaN it is many times slower, and of no column it has no shape
    percentile = np.percentile if stalls or not samples.size else np.nanpercentile
    p50, p90, p95, p99 = percentile(shown, [50, 90, 95, 99], axis=0)
    return Summary(
        mean=np.clip(_mean(samples, usual), least, most),  # rounding may leave the samples
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        min=least,
        max=most,
        std=np.full(samples.shape[1:], np.nan) if one else np.nanstd(shown, axis=0, ddof=1),
        ci95_half=ci95_half(samples, usual),
    )


def bulk(samples: FloatArray, tick: float = 0.0) -> npt.NDArray[np.bool_]:
    """Returns which samples of each column are no stalls.

    Whatever disturbs a run makes it longer. So the lower half of the samples is free of stalls,
    even if most runs had one, and tells how the others scatter: the bulk ends 3.7 standard
    deviations, as the distance of the lower quartile from the 5th percentile implies them, above
    the lower quartile. A quiet column loses next to nothing; its mean is finer than its median,
    which can only be a whole number of ticks.
    """
    low, lowest = np.quantile(samples, [_LOW, _LOWEST], axis=0)
    sigma = np.maximum((low - lowest) * _LOW_TO_SIGMA, _LEAST_SIGMA * low)
    usual: npt.NDArray[np.bool_] = samples <= low + _REACH * np.maximum(sigma, tick / 2)
    return usual


def ci95_half(samples: FloatArray, counted: npt.NDArray[np.bool_] | None = None) -> FloatArray:
    """Half the width of a 95 % confidence interval of the mean of each column; NaN for one run.

    `counted` are the samples that the mean is of. Runs that follow each other are alike (caches,
    clock speed, neighbours), which makes the usual formula too sure. The method of batch means
    takes the means of up to 30 consecutive batches, long enough to be nearly independent, as the
    sample (Law, Simulation Modeling and Analysis, 5th ed., 9.5.3).
    """
    if len(samples) < 2:
        return np.full(samples.shape[1:], np.nan)
    mask = np.ones(samples.shape, bool) if counted is None else counted
    batches, inside = in_batches(samples), in_batches(mask)
    sizes = inside.sum(axis=1)
    filled = (sizes > 0).sum(axis=0)
    sums = np.where(inside, batches, 0.0).sum(axis=1)
    overall = _mean(samples, mask)
    means = np.where(sizes > 0, sums / np.maximum(sizes, 1), overall)
    variance = ((means - overall) ** 2).sum(axis=0) / np.maximum(filled - 1, 1)
    error: FloatArray = np.sqrt(variance / np.maximum(filled, 1))
    half: FloatArray = t_quantile(0.05, len(batches) - 1) * error
    return half


def _mean(samples: FloatArray, counted: npt.NDArray[np.bool_]) -> FloatArray:
    sums: FloatArray = np.where(counted, samples, 0.0).sum(axis=0, dtype=np.float64)
    means: FloatArray = sums / counted.sum(axis=0)
    return means


def in_batches(samples: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Returns consecutive batches (batches × size × …); the oldest runs, least settled, are cut."""
    batches = min(BATCHES, len(samples))
    size = len(samples) // batches
    return samples[len(samples) - size * batches :].reshape(batches, size, *samples.shape[1:])


def middle_mean(values: FloatArray) -> FloatArray:
    """Returns the mean of the middle half along the first axis, the median of up to four values.

    A quarter of disturbed values at either end does not touch it, as with a median; unlike a
    median, it tells 2.4 from 1.6 where values are whole numbers.
    """
    ordered = np.sort(values, axis=0)
    cut = (len(ordered) + 1) // 4
    middle: FloatArray = ordered[cut : len(ordered) - cut].mean(axis=0)
    return middle


def normal_cdf(z: FloatArray) -> FloatArray:
    """Returns P(Z < z) for the standard normal distribution, without cancellation below 0."""
    cdf: FloatArray = 0.5 * np.asarray(_erfc(-z / math.sqrt(2)), np.float64)
    return cdf


def normal_quantile(p: FloatArray) -> FloatArray:
    """Returns the z with P(Z < z) = p; infinite at 0 and 1, NaN for NaN."""
    quantile = np.where(p <= 0, -np.inf, np.where(p >= 1, np.inf, np.nan))
    inside = (p > 0) & (p < 1)
    quantile[inside] = _inverse(p[inside])
    return quantile


def t_p_value(t: float, dof: float) -> float:
    """Returns P(|T| > |t|) for Student's t distribution with `dof` degrees of freedom."""
    if math.isnan(t) or not dof > 0:
        return math.nan
    if dof > _NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    x, a = 1 / (1 + t * t / dof), dof / 2
    if x < (a + 1) / (a + 2.5):  # where the fraction converges fast
        return _incomplete_beta(a, 0.5, x)
    return 1 - _incomplete_beta(0.5, a, t * t / (dof + t * t))


def t_quantile(level: float, dof: float) -> float:
    """Returns the t that |T| exceeds with probability `level`, for Student's t distribution."""
    if not (dof > 0 and 0 < level < 1):
        return math.nan
    if dof > _NORMAL:
        return -NormalDist().inv_cdf(level / 2)
    log_scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - math.log(dof * math.pi) / 2
    t = -NormalDist().inv_cdf(level / 2)
    for _ in range(_STEPS):  # Newton's: from below, where it begins, each ends below the quantile
        density = 2 * math.exp(log_scale - (dof + 1) / 2 * math.log1p(t * t / dof))
        step = (t_p_value(t, dof) - level) / max(density, _LEAST)
        t += step
        if step <= 1e-14 * t:
            break
    return t


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Returns the regularized incomplete beta function (Press et al., Numerical Recipes, 6.4)."""
    if x in (0.0, 1.0):
        return x
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x)) / a
    c, d, result = 1.0, 1 / (1 - (a + b) * x / (a + 1)), 1 / (1 - (a + b) * x / (a + 1))
    for m in range(1, _STEPS):  # Lentz's method
        change = 1.0
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + term * d), 1 + term / c
            change = d * c
            result *= change
        if abs(change - 1) < 1e-15:
            break
    return front * result
