"""Take off what the profiler adds, so that the times of all rows agree with the undisturbed run.

Calibration tells what is added to each row, but neither how fast the machine was at the moment nor
what each single kernel is off the line. The sum of all rows is known better: it is the undisturbed
wall, less that of a run without nodes. So the rows are adjusted to it by least squares with one
condition, each in proportion to its covariance with the sum (Mikhail, Observations and Least
Squares, 1976). What is uncertain is

- by how much all that is added is scaled: the machine was slower or faster when it calibrated;
- by how much profiled runs as a whole were slower than undisturbed ones;
- what each row is off by itself: the misfit of the calibration, and a clock of whole µs.

A time is not negative. Where a row's uncertainty reaches below 0, its mean and its interval are
those of the normal distribution cut off there, so that a short row is uncertain, and never 0.
"""

import math
from dataclasses import dataclass

import numpy as np

from tracer.support.types import FloatArray

_SCALE = 0.3
"""Standard deviation of the factor on all that is added: machines whose clock speed follows the
load, or that others use too, were seen to be half as fast a moment later."""

_SINGLE = 0.1
"""Share of what is added to a row by which it may be off alone, however well calibration fits."""

_SLOWER = 0.03
"""Standard deviation of the ratio of profiled to undisturbed runs, taken in turn."""

_BELIEVED = 2.0
"""Standard deviations by which the sum may be raised. What is missing beyond that is no error of
the calibration, but work of the runtime's that is in no kernel: it stays unattributed. There is
no limit downwards, because rows cannot take longer than the run they are part of."""

_HALVINGS = 60
_MOST_DOUBLINGS = 60
_FAR = -8.0
"""Standard deviations below 0 from where the tail is computed by its series."""


@dataclass(frozen=True, slots=True)
class Sum:
    """What all rows take together (µs), its standard error, and whether it is only a bound.

    It is a bound where nobody measured what a run takes besides its rows.
    """

    value: float
    error: float
    bound: bool


@dataclass(frozen=True, slots=True)
class Correction:
    """`added` is to be taken off each row (µs a run).

    `own` is the standard deviation of what each row is off by itself, `error` of all that is
    uncertain of its correction.
    """

    added: FloatArray
    own: FloatArray
    error: FloatArray

    def of(self, raw: FloatArray) -> FloatArray:
        """Times from what the profiler reported, along the last axis; none is negative."""
        return _mean_above_zero(raw - self.added, self.own)

    def interval(self, raw: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        """95 % interval of each time, where `raw` has a standard error of its own (NaN unknown).

        It holds the time itself, also far below 0, where all that is left of both is chance.
        """
        x, sigma = raw - self.added, np.hypot(self.error, error)
        low, high = (_quantile_above_zero(x, sigma, p) for p in (0.025, 0.975))
        time = self.of(raw)
        return np.minimum(low, time), np.maximum(high, time)


def correct(raw: FloatArray, bias: FloatArray, error: FloatArray, total: Sum) -> Correction:
    """Adjust `raw - bias` of each row (µs a run) to what they take together.

    `error` is the standard deviation of what each row is off by itself. Where nothing is added,
    nothing is taken off, whatever the sum.
    """
    if not bias.any():
        return Correction(bias, error, error)
    single = np.hypot(error, _SINGLE * bias)
    times = np.maximum(raw - bias, 0.0)
    own = single**2 + (_SCALE * bias) ** 2 + (_SLOWER * times) ** 2
    first = Correction(bias, single, np.sqrt(own))
    missing = total.value - float(first.of(raw).sum())
    if missing >= 0:  # to run under a profiler makes nothing faster
        if total.bound:
            return first
        own, times = own - (_SLOWER * times) ** 2, 0.0 * times
    with_sum = single**2 + _SCALE**2 * bias * bias.sum() + _SLOWER**2 * times * times.sum()
    explained = math.sqrt(with_sum.sum())
    goal = total.value - max(missing - _BELIEVED * explained, 0.0)
    variance = with_sum.sum() + total.error**2
    left = np.sqrt(np.maximum(own - with_sum**2 / variance, 0.0))
    misfit = max(1.0, -missing / math.sqrt(variance))  # Birge's ratio
    share = with_sum / with_sum.sum()
    return Correction(bias + _amount(first, raw, share, goal) * share, single, left * misfit)


def _amount(first: Correction, raw: FloatArray, share: FloatArray, goal: float) -> float:
    """How much more than at first to take off all rows, by their `share`, to come to `goal`."""

    def excess(amount: float) -> float:
        return float(_mean_above_zero(raw - first.added - amount * share, first.own).sum()) - goal

    low, high = -1.0, 1.0
    for _ in range(_MOST_DOUBLINGS):
        if excess(low) < 0:
            low *= 2
        if excess(high) > 0:
            high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def tick_error(samples: FloatArray, calls: FloatArray, tick: float) -> FloatArray:
    """Standard deviation of what a clock of whole ticks leaves in the mean of each column.

    `samples` (runs × columns) are sums of `calls` durations, each cut to whole ticks. Where they
    spread, the cut falls anywhere and averages out; a harmonic k of it by exp(-2 π² k² s²) for
    durations normal around their mean by s ticks (Widrow and Kollár, Quantization Noise, 2008).
    Where they do not, the same part of a tick is lost in every run.
    """
    low, high = np.quantile(samples, [0.16, 0.84], axis=0)
    root = np.sqrt(np.maximum(calls, 1.0))
    spread = (
        np.maximum((high - low) / tick / root - 1.0, 0.0) / 2
    )  # at least so much, before the cut
    harmonics = np.arange(1, 20)[:, None]
    power = np.exp(-((2 * math.pi * harmonics * spread) ** 2)) / (2 * (math.pi * harmonics) ** 2)
    errors: FloatArray = tick * calls * np.sqrt(power.sum(axis=0))
    return errors


def _mean_above_zero(x: FloatArray, sigma: FloatArray) -> FloatArray:
    """Mean of normal distributions around `x`, cut off below 0."""
    from scipy.special import ndtr  # 0.35 s

    z = _standardized(x, sigma)
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    near = z + density / ndtr(np.maximum(z, _FAR))
    inverse = 1 / np.minimum(z, _FAR)
    far = -inverse + 2 * inverse**3  # Mills' ratio, two terms
    expected: FloatArray = np.where(z > -_FAR, x, np.where(z < _FAR, far, near) * sigma)
    return expected


def _quantile_above_zero(x: FloatArray, sigma: FloatArray, p: float) -> FloatArray:
    """Quantile of the same distributions; NaN where sigma is."""
    from scipy.special import ndtr, ndtri

    above_zero = ndtr(np.maximum(_standardized(x, sigma), -30.0))
    quantile: FloatArray = np.maximum(x - sigma * ndtri((1 - p) * above_zero), 0.0)
    return quantile


def _standardized(x: FloatArray, sigma: FloatArray) -> FloatArray:
    safe = np.where(sigma > 0, sigma, 1.0)
    farthest = 1e6  # no two normal distributions differ beyond; a square of it is still a number
    return np.where(sigma > 0, np.clip(x / safe, -farthest, farthest), np.copysign(1e3, x))
