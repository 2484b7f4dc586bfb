"""Subtract profiler overhead, so that the times of all rows add up to the undisturbed run.

Calibration yields the overhead of each row, but neither the speed of the machine at the time of the
run nor the deviation of a single kernel. The sum of all rows is better known: it is the undisturbed
wall time less that of a run without nodes. So the rows are adjusted to this sum by constrained
least squares, each in proportion to its covariance with the sum (Mikhail, Observations and Least
Squares, 1976). The adjustment stays within what its causes can be: overhead of half to twice the
calibrated one, and profiled runs slower by 6 %. What is left is in no row. Three errors are
modelled:

- a scale of all overheads: the machine was slower or faster during calibration;
- a scale of all profiled runs relative to undisturbed runs;
- an error of each row: the misfit of the calibration, and the clock of whole µs.

A time is not negative. If the interval of a row reaches below 0, its mean and interval are those of
the normal distribution truncated at 0. A short row is thus uncertain, but never 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracer.support.measurements import normal_cdf, normal_quantile
from tracer.support.types import FloatArray

Point = tuple[float, float]
"""A place, and the value of a function there."""

_SCALE = 0.3
"""Standard deviation of the scale of all overheads. Machines with a variable clock or other users
have been observed at half the speed a moment later."""

_SINGLE = 0.1
"""Least standard deviation of the error of a row, as a share of its overhead."""

_SLOWER = 0.03
"""Standard deviation of the ratio of profiled to undisturbed runs, which alternate."""

_BELIEVED = 2.0
"""Standard deviations by which the sum may be raised, and by which profiled runs may be slower than
undisturbed ones. A larger gap belongs to no row: work of the runtime outside kernels, or a machine
that was slower in one kind of runs."""

_LEAST_SCALE, _MOST_SCALE = 0.5, 2.0
"""Limits of the overhead ÷ the calibrated overhead. No machine was seen to leave them while it ran
undisturbed; a stall of another program would."""

_SMALLEST = 1e6
"""Standard deviations below 0 at which a time is next to nothing."""

_CLOSE = 1e-9
"""Distance, in µs or relative, at which the search for the overhead of all rows ends."""
_FAR = -8.0
"""Standard deviations below 0 from which the tail is computed by its series."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Total time of all rows (µs), its standard error, and whether it is only an upper bound.

    It is a bound if the time of a run without nodes was not measured.
    """

    value: float
    error: float
    bound: bool


@dataclass(frozen=True, slots=True)
class Correction:
    """The overhead `added` to each row (µs per run).

    `own` is the standard deviation of each row's own error, `error` of all errors together. `scale`
    is the overhead ÷ the calibrated overhead. `beyond` is the part of `added` that no error
    explains: it keeps the sum within its run, and says nothing of how long the row may take.
    """

    added: FloatArray
    own: FloatArray
    error: FloatArray
    scale: float = 1.0
    beyond: FloatArray | float = 0.0

    def of(self, raw: FloatArray) -> FloatArray:
        """Returns corrected times of reported times (rows on the last axis); none is negative."""
        return _mean_above_zero(raw - self.added, self.own)

    def interval(self, raw: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the 95 % interval of each time; `error` is the standard error of `raw` (or NaN).

        The interval contains the time, even if `raw` is far below the overhead.
        """
        x, sigma = raw - self.added, np.hypot(self.error, error)
        low = _quantile_above_zero(x, sigma, 0.025)
        high = _quantile_above_zero(x + self.beyond, sigma, 0.975)
        time = self.of(raw)
        return np.minimum(low, time), np.maximum(high, time)


def correct(raw: FloatArray, bias: FloatArray, error: FloatArray, total: Sum) -> Correction:
    """Adjusts `raw - bias` of each row (µs per run) to the total of all rows.

    `error` is the standard deviation of each row's own error. Without overhead, nothing is
    subtracted, whatever the total.
    """
    if not bias.any():
        return Correction(bias, error, error)
    single = np.hypot(error, _SINGLE * bias)
    times = np.maximum(raw - bias, 0.0)
    own = single**2 + (_SCALE * bias) ** 2 + (_SLOWER * times) ** 2
    first = Correction(bias, single, np.sqrt(own))
    missing = total.value - float(first.of(raw).sum())
    if missing >= 0:  # a profiler makes nothing faster
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
    # Of an amount, the scale of the overhead explains bias x this, and slower runs the time x that.
    scale = max(_SCALE**2 * bias.sum() / with_sum.sum(), 1e-12)
    slower = _SLOWER**2 * times.sum() / with_sum.sum()
    most = min((_MOST_SCALE - 1) / scale, _BELIEVED * _SLOWER / max(slower, 1e-12))
    limits = (_LEAST_SCALE - 1) / scale, most
    amount = _amount(first, raw, share, goal, limits)
    added, beyond = bias + amount * share, np.zeros_like(bias)
    if amount == most:  # rows that may be next to nothing are, before the sum exceeds its run
        apart = Correction(added, single, first.error)
        small = np.where(raw - added < _BELIEVED * single, single, 0.0)
        beyond = _amount(apart, raw, small, goal, (0.0, _SMALLEST)) * small
    return Correction(added + beyond, single, left * misfit, 1 + amount * scale, beyond)


def _amount(
    first: Correction, raw: FloatArray, share: FloatArray, goal: float, limits: Point
) -> float:
    """Returns how much more to subtract from all rows, by their `share`, to come close to `goal`.

    It is within `limits`, the first of which is the lower.
    """

    def excess(amount: float) -> float:
        return float(_mean_above_zero(raw - first.added - amount * share, first.own).sum()) - goal

    (low, at_low), (high, at_high) = ((limit, excess(limit)) for limit in limits)
    if at_low <= 0:  # not even the least amount leaves so much
        return low
    return high if at_high >= 0 else _root(excess, (low, at_low), (high, at_high))


def _root(of: Callable[[float], float], left: Point, right: Point) -> float:
    """Returns where a falling function is 0, between two points of it, from above.

    It takes the secant, with half the value of an end that stays twice (Dowell and Jarratt, A
    modified regula falsi method, 1971), and every third time the middle, which bounds the steps.
    """
    (low, at_low), (high, at_high) = left, right
    steps, was_low = 0, None
    while high - low > (close := _CLOSE * max(1.0, -low, high)):
        steps += 1
        share = at_low / (at_low - at_high) if steps % 3 and at_low > at_high else 0.5
        place = min(max(low + share * (high - low), low + close / 2), high - close / 2)
        value = of(place)
        if value > 0:
            low, at_low = place, value
            at_high /= 1 + (was_low is True)
        else:
            high, at_high = place, value
            at_low /= 1 + (was_low is False)
        was_low = value > 0
    return high


def tick_error(samples: FloatArray, calls: FloatArray, tick: float) -> FloatArray:
    """Returns the standard deviation of the mean of each column due to a clock of whole ticks.

    `samples` (runs × columns) are sums of `calls` durations, each truncated to whole ticks. The
    error averages out if durations vary: for a standard deviation of s ticks, its harmonic k
    shrinks by exp(-2 π² k² s²) (Widrow and Kollár, Quantization Noise, 2008). If they do not vary,
    every run loses the same part of a tick.
    """
    low, high = np.quantile(samples, [0.16, 0.84], axis=0)
    root = np.sqrt(np.maximum(calls, 1.0))
    # A lower bound of the spread before truncation.
    spread = np.maximum((high - low) / tick / root - 1.0, 0.0) / 2
    harmonics = np.arange(1, 20)[:, None]
    power = np.exp(-((2 * math.pi * harmonics * spread) ** 2)) / (2 * (math.pi * harmonics) ** 2)
    errors: FloatArray = tick * calls * np.sqrt(power.sum(axis=0))
    return errors


def _mean_above_zero(x: FloatArray, sigma: FloatArray) -> FloatArray:
    """Returns the mean of normal distributions around `x`, truncated at 0."""
    z = _standardized(x, sigma)
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    near = z + density / normal_cdf(np.maximum(z, _FAR))
    inverse = 1 / np.minimum(z, _FAR)
    far = -inverse + 2 * inverse**3  # Mills' ratio, two terms
    expected: FloatArray = np.where(z > -_FAR, x, np.where(z < _FAR, far, near) * sigma)
    return expected


def _quantile_above_zero(x: FloatArray, sigma: FloatArray, p: float) -> FloatArray:
    """Returns a quantile of the same distributions; NaN if sigma is NaN."""
    above_zero = normal_cdf(np.maximum(_standardized(x, sigma), -30.0))
    quantile: FloatArray = np.maximum(x - sigma * normal_quantile((1 - p) * above_zero), 0.0)
    return quantile


def _standardized(x: FloatArray, sigma: FloatArray) -> FloatArray:
    safe = np.where(sigma > 0, sigma, 1.0)
    farthest = 1e6  # beyond, normal distributions do not differ; its square is still finite
    return np.where(sigma > 0, np.clip(x / safe, -farthest, farthest), np.copysign(1e3, x))
