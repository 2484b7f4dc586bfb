"""Compare two times: their ratio and difference, the confidence intervals, and a significance test.

Sides that take turns are compared by the logarithms of the ratios of their turns: see `log_ratios`
and `of_turns`. Stored traces are independent samples: the interval of their ratio is Fieller's
(Fieller, Some problems in interval estimation, 1954), the ratios r for which `b - r a` does not
differ significantly from 0 by Welch's test.

All intervals agree with their tests: 1 lies outside exactly if the difference is significant.
Systematic errors of a time (profiler overhead, clock, memory layout) are equal in every session.
Their variance is added to the variance of the mean, whatever the number of sessions.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from tracer.support.measurements import in_batches, middle_mean, t_p_value, t_quantile
from tracer.support.types import FloatArray

LEVEL = 0.01
"""Significance level of tests and intervals. Stricter than the documented 5 % of false alarms:
sessions on a shared machine are less independent than the formula assumes."""

_ALIKE = 0.05
"""Standard deviation by which the overhead of alike kernels differs between two models, as a share.
Rows of one model in which another layer is slower differ by up to 0.15 of 2 µs."""

_LAYOUT = 0.0015
"""Standard deviation of what distinguishes two sides for a whole comparison, as a share.

Sessions that are opened anew do not show it, however many: where their memory lies depends on that
of the sessions before. Comparisons of a model with itself scattered by 0.0014, as their sessions
told, most of the time, and by up to 0.0035 in spells of a minute. It is no better known than that,
and adds no degrees of freedom.
"""

_MOST_DOF = 500
"""Student's t equals the normal distribution to a thousandth from here on."""

FINEST = NormalDist().inv_cdf(1 - LEVEL / 2) * _LAYOUT
"""Half the interval of sides that took turns, as a share, after any number of sessions."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A mean (µs), its standard error and degrees of freedom; 0 if unknown.

    `systematic` is the standard deviation of errors that more runs do not reduce, and `misfit` its
    part that is no scale of all times, which sides that took turns share. `overhead` (µs) was
    subtracted from what was measured; `kernels` tell what a profiler adds to each: it is the same
    for equal ones. `sessions` are the blocks of whole runs that alternated with those of other
    sides, if any.
    """

    mean: float
    error: float
    dof: int
    systematic: float = 0.0
    misfit: float = 0.0
    overhead: float = 0.0
    kernels: tuple[Hashable, ...] = ()
    sessions: Sequence[FloatArray] | None = None


@dataclass(frozen=True, slots=True)
class Contrast:
    """Ratio of the second mean to the first, and the change in µs; NaN for unknown values.

    `low` and `high` bound the ratio with confidence 1 - LEVEL, `change_low` and `change_high` the
    change; `p` is the p-value of the difference.
    """

    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    change: float = math.nan
    change_low: float = math.nan
    change_high: float = math.nan
    p: float = math.nan


def of_means(means: FloatArray) -> Sample:
    """Returns the sample of independent means."""
    error = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    return Sample(float(means.mean()), error, len(means) - 1)


def of_blocks(sessions: Sequence[FloatArray]) -> Sample:
    """Returns the sample of one side of sessions, each with the times of its blocks."""
    sample = of_means(np.array([np.median(blocks) for blocks in sessions]))
    return replace(sample, sessions=sessions)


def of_runs(runs: FloatArray) -> Sample:
    """Returns the sample of consecutive runs: medians of up to 30 consecutive batches.

    Neighbouring runs are correlated; long batches are nearly independent (see
    `tracer.support.measurements.ci95_half`). A median ignores a single disturbed run. What
    correlation is left raises the variance.
    """
    medians = np.median(in_batches(runs), axis=1)
    sample = of_means(medians)
    return replace(sample, error=sample.error * math.sqrt(_inflation(medians)))


def contrast(first: Sample, second: Sample) -> Contrast:
    """Compares two means: by their sessions if they alternated, else as independent samples."""
    if first.sessions is not None and second.sessions is not None:
        return of_sessions(first.sessions, second.sessions)
    ratio = second.mean / first.mean if first.mean > 0 else math.nan
    change = second.mean - first.mean
    if min(first.dof, second.dof) < 1:
        return Contrast(ratio, change=change)
    aa, bb = first.error**2, second.error**2
    scale = aa**2 / first.dof + bb**2 / second.dof
    # the degrees of freedom of a difference (Welch, 1947), rounded down
    dof = int((aa + bb) ** 2 / scale) if scale > 0 else min(first.dof, second.dof)
    systematic = math.hypot(first.systematic, second.systematic)
    error, dof = _with_systematic(math.sqrt(aa + bb), dof, systematic)
    if not error > 0:  # the clock of whole µs never moved, so the error is unknown
        return Contrast(ratio, change=change)
    t = t_quantile(LEVEL, dof)
    spread = aa + first.systematic**2, bb + second.systematic**2
    low, high = _fieller(first.mean, second.mean, spread, t)
    p = t_p_value(change / error, dof)
    return Contrast(ratio, low, high, change, change - t * error, change + t * error, p)


def of_sessions(first: Sequence[FloatArray], second: Sequence[FloatArray]) -> Contrast:
    """Compares two sides whose blocks took turns within each session.

    The ratio of a session is the median over its turns, which ignores turns that were disturbed.
    Sessions differ by their memory layout as well, so they are the sample: the interval is
    Student's, of the logarithms of their ratios.
    """
    logs = np.array([np.median(np.log(b / a)) for a, b in zip(first, second, strict=True)])
    level = float(np.mean([np.median(blocks) for blocks in first]))
    return of_turns(logs, Sample(level, math.nan, 0), Sample(math.nan, math.nan, 0))


def log_ratios(first: Sequence[FloatArray], second: Sequence[FloatArray]) -> FloatArray:
    """Returns the logarithm of the ratio of each layer in each session (sessions × layers).

    `first` and `second` have the times of the layers (turns × layers) of each session, of sides
    that took turns. The ratio of a session is the mean of the middle half of its turns. It is
    infinite for a layer that mostly took no time that the clock could tell, on one side.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.array(
            [
                middle_mean(np.where(a == b, 0.0, np.log(b) - np.log(a)))
                for a, b in zip(first, second, strict=True)
            ]
        )


def of_turns(logs: FloatArray, first: Sample, second: Sample) -> Contrast:
    """Compares two sides by the logarithms of the ratios of their sessions.

    These are ratios of measured times, overhead included. With a ratio r, the second side took
    `r (a + o) - p` where the first took a and their overheads are o and p. An overhead that is
    calibrated alike on both sides is the mean of both: its error is the same, and changes the size
    of a difference rather than whether there is one.
    """
    if not np.isfinite(logs).all():
        return Contrast(change=second.mean - first.mean)
    log, count = float(logs.mean()), len(logs)
    raw, time = first.mean + first.overhead, first.mean
    added, misfit = second.overhead - first.overhead, misfit_of(first, second)
    if is_shared(first, second):
        time = time - added / 2 if added < 2 * time else time
        added = 0.0
    if added <= -raw:  # an overhead beyond all that was measured tells nothing of the times
        return Contrast(change=second.mean - first.mean)
    change = raw * math.expm1(log) - added
    if change <= -time:  # what is left of the second time is no time: its size is not known
        time = math.nan
    plain = Contrast(1 + change / time if time > 0 else math.nan, change=change)
    error = float(logs.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    # (r - 1) / ln r of the ratio r: its change for a change of the logarithm, on average
    slope = math.expm1(log) / log if log else 1.0
    error, dof = _with_systematic(error, count - 1, misfit / (raw * slope))
    if not error > 0:  # one session, or a clock that never moved
        return plain
    error = math.hypot(error, _LAYOUT)
    half = t_quantile(LEVEL, dof) * error
    low, high = (raw * math.expm1(end) - added for end in (log - half, log + half))
    p = t_p_value((log - math.log1p(added / raw)) / error, dof)
    ratio_low, ratio_high = _ratios(low, high, time, half / error * first.systematic)
    return replace(plain, low=ratio_low, high=ratio_high, change_low=low, change_high=high, p=p)


def only_first(sample: Sample) -> Contrast:
    """Compares a time with nothing in its place: the whole of it is the change."""
    alone = only_second(sample)
    low, high = -alone.change_high, -alone.change_low
    return Contrast(change=-alone.change, change_low=low, change_high=high, p=alone.p)


def only_second(sample: Sample) -> Contrast:
    """Compares nothing with a time in its place: the whole of it is the change."""
    error, dof = _with_systematic(sample.error, sample.dof, sample.systematic)
    if not error > 0:
        return Contrast(change=sample.mean)
    half = t_quantile(LEVEL, dof) * error
    p = t_p_value(sample.mean / error, dof)
    low, high = sample.mean - half, sample.mean + half
    return Contrast(change=sample.mean, change_low=low, change_high=high, p=p)


def holm(p: Sequence[float]) -> list[float]:
    """Returns p-values adjusted for multiple tests.

    Holm, A simple sequentially rejective multiple test procedure, 1979. Comparing them with LEVEL
    bounds the chance of any false alarm by LEVEL. NaN stays NaN and is no test.
    """
    tests = sorted((value, index) for index, value in enumerate(p) if not math.isnan(value))
    adjusted, largest = [math.nan] * len(p), 0.0
    for rank, (value, index) in enumerate(tests):
        largest = max(largest, min(1.0, (len(tests) - rank) * value))
        adjusted[index] = largest
    return adjusted


def is_shared(first: Sample, second: Sample) -> bool:
    """Returns whether the profiler adds the same to both sides: their kernels look alike to it."""
    return Counter(first.kernels) == Counter(second.kernels)


def misfit_of(first: Sample, second: Sample) -> float:
    """Returns the standard deviation of the difference of the overheads of both sides, µs.

    It is that of the kernels which one side alone has, and a little for those of both.
    """
    common = (Counter(first.kernels) & Counter(second.kernels)).total()
    apart = [1 - common / len(side.kernels) if side.kernels else 0.0 for side in (first, second)]
    alike = _ALIKE * abs(first.overhead) * (1 - apart[0])
    return math.hypot(alike, first.misfit * apart[0], second.misfit * apart[1])


def _ratios(low: float, high: float, first: float, uncertain: float) -> tuple[float, float]:
    """Returns the ends of a ratio to a time `first` ± `uncertain` that changes by `low` to `high`.

    Its size is uncertain where that time is, not whether it lies beside 1. NaN if it is unbounded.
    """
    least, most = first - uncertain, first + uncertain
    if not least > 0:
        return math.nan, math.nan
    lowest = 1 + low / (least if low < 0 else most)
    return max(0.0, lowest), 1 + high / (most if high < 0 else least)


def _with_systematic(error: float, dof: int, systematic: float) -> tuple[float, int]:
    """Returns an error with a systematic one, and its degrees of freedom.

    These are Welch's, with one variance known exactly. Few measurements have no error at all: NaN.
    """
    if math.isnan(error) or dof < 1:
        return math.nan, dof
    if systematic > 0:
        growth = 1 + (systematic / error) ** 2 if error > 0 else math.inf
        dof = int(min(dof * growth**2, _MOST_DOF))
    return math.hypot(error, systematic), dof


def _fieller(a: float, b: float, spread: tuple[float, float], t: float) -> tuple[float, float]:
    """Returns the range of r with (b - r a)² <= t² (bb + r² aa); NaN if unbounded."""
    aa, bb = (t * t * value for value in spread)
    square, middle, rest = a * a - aa, a * b, b * b - bb
    if a <= 0 or square <= 0:
        return math.nan, math.nan
    root = math.sqrt(max(middle * middle - square * rest, 0.0))
    return max((middle - root) / square, 0.0), (middle + root) / square


def _inflation(series: FloatArray) -> float:
    """Returns the variance inflation of the mean by correlation of neighbours, at least 1.

    It is (1 + r) / (1 - r) for a correlation r (Law, Simulation Modeling and Analysis, 5th ed.,
    4.4). A negative r would weaken the test, and counts as 0.
    """
    centred = series - series.mean()
    power = float((centred**2).sum())
    if power <= 0:
        return 1.0
    neighbours = float((centred[1:] * centred[:-1]).sum()) / power
    neighbours = min(max(neighbours, 0.0), 0.9)
    return (1 + neighbours) / (1 - neighbours)
