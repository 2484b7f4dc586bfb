"""Compare two mean times: their ratio, its confidence interval, and a significance test.

The interval is Fieller's (Fieller, Some problems in interval estimation, 1954): the ratios r for
which `b - r a` does not differ significantly from 0 by Student's t. It agrees with the test: 1 lies
outside exactly if the difference is significant.

Systematic errors of a time (profiler overhead, clock) are equal in every round. Their variance is
added to the variance of the mean, whatever the number of rounds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzers.statistics import in_batches, t_p_value, t_quantile
from tracer.support.types import FloatArray

LEVEL = 0.01
"""Significance level of tests and intervals. Stricter than the documented 5 % of false alarms:
rounds on a shared machine are less independent than the formula assumes."""

_MOST_DOF = 500
"""Student's t equals the normal distribution to a thousandth from here on."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A mean (µs), its standard error and degrees of freedom; 0 if unknown.

    `rounds` are measurements that alternated with the other side's, if any, and `sessions` the
    blocks of runs that did so within each of them. `systematic` is the standard deviation of errors
    that more rounds do not reduce.
    """

    mean: float
    error: float
    dof: int
    rounds: FloatArray | None = None
    systematic: float = 0.0
    sessions: Sequence[FloatArray] | None = None


@dataclass(frozen=True, slots=True)
class Contrast:
    """Ratio of the second mean to the first; NaN for unknown values.

    `low` and `high` bound it with confidence 1 - LEVEL; `p` is the p-value of the difference.
    """

    ratio: float
    low: float
    high: float
    p: float


def of_rounds(rounds: FloatArray) -> Sample:
    """Returns the sample of one side of alternating rounds."""
    error = math.nan
    if len(rounds) > 1:
        error = math.sqrt(_covariance(rounds, rounds) / len(rounds) * _inflation(rounds))
    return Sample(float(rounds.mean()), error, len(rounds) - 1, rounds)


def of_blocks(sessions: Sequence[FloatArray]) -> Sample:
    """Returns the sample of one side of sessions, each with the times of its blocks."""
    return replace(
        of_rounds(np.array([np.median(blocks) for blocks in sessions])), sessions=sessions
    )


def of_runs(runs: FloatArray) -> Sample:
    """Returns the sample of consecutive runs: medians of up to 30 consecutive batches.

    Neighbouring runs are correlated; long batches are nearly independent (see
    `analyzers.statistics.ci95_half`). A median ignores a single disturbed run.
    """
    return replace(of_rounds(np.median(in_batches(runs), axis=1)), rounds=None)


def contrast(first: Sample, second: Sample) -> Contrast:
    """Compares two means: pairwise if they alternated, else as independent samples."""
    if first.sessions is not None and second.sessions is not None:
        return of_sessions(first.sessions, second.sessions)
    ratio = second.mean / first.mean if first.mean > 0 else math.nan
    if min(first.dof, second.dof) < 1:
        return Contrast(ratio, math.nan, math.nan, math.nan)
    aa, ab, bb, dof = _spread(first, second, ratio)
    difference, variance = second.mean - first.mean, aa - 2 * ab + bb
    if variance <= 0:  # the clock of whole µs never moved, so the error is unknown
        return Contrast(ratio, math.nan, math.nan, math.nan)
    low, high = _fieller(first.mean, second.mean, (aa, ab, bb), t_quantile(LEVEL, dof))
    return Contrast(ratio, low, high, t_p_value(difference / math.sqrt(variance), dof))


def of_sessions(first: Sequence[FloatArray], second: Sequence[FloatArray]) -> Contrast:
    """Compares two sides whose blocks took turns within each session.

    The ratio of a session is the median over its turns, which ignores turns that were disturbed.
    Sessions differ by their memory layout as well, so they are the sample: the interval is
    Student's, of the logarithms of their ratios.
    """
    logs = np.array([np.median(np.log(b / a)) for a, b in zip(first, second, strict=True)])
    mean, count = float(logs.mean()), len(logs)
    error = float(logs.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    if error == 0:  # one session, or a clock that never moved
        return Contrast(math.exp(mean), math.nan, math.nan, math.nan)
    half = t_quantile(LEVEL, count - 1) * error
    p = t_p_value(mean / error, count - 1)
    return Contrast(math.exp(mean), math.exp(mean - half), math.exp(mean + half), p)


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


def _spread(first: Sample, second: Sample, ratio: float) -> tuple[float, float, float, int]:
    """Returns variances and covariance of the means, and degrees of freedom of the difference."""
    aa, ab, bb, dof = _random_spread(first, second, ratio)
    systematic = first.systematic**2 + second.systematic**2
    varying = aa - 2 * ab + bb
    if systematic > 0:  # Welch's formula, with one variance known exactly
        growth = 1 + systematic / varying if varying > 0 else math.inf
        dof = int(min(dof * growth**2, _MOST_DOF))
    return aa + first.systematic**2, ab, bb + second.systematic**2, dof


def _random_spread(first: Sample, second: Sample, ratio: float) -> tuple[float, float, float, int]:
    """Returns the values of `_spread` for random errors alone."""
    a, b = first.rounds, second.rounds
    if a is not None and b is not None and len(a) == len(b):
        slack = _inflation(b - (ratio if math.isfinite(ratio) else 1.0) * a)
        pairs = ((a, a), (a, b), (b, b))
        aa, ab, bb = (_covariance(x, y) / len(a) * slack for x, y in pairs)
        return aa, ab, bb, first.dof
    aa, bb = first.error**2, second.error**2
    return aa, 0.0, bb, _welch(aa, first.dof, bb, second.dof)


def _welch(aa: float, dof_a: int, bb: float, dof_b: int) -> int:
    """Returns the degrees of freedom of a difference (Welch, 1947), rounded down."""
    scale = aa**2 / dof_a + bb**2 / dof_b
    return int((aa + bb) ** 2 / scale) if scale > 0 else min(dof_a, dof_b)


def _fieller(
    a: float, b: float, spread: tuple[float, float, float], t: float
) -> tuple[float, float]:
    """Returns the range of r with (b - r a)² <= t² (bb - 2 r ab + r² aa); NaN if unbounded."""
    aa, ab, bb = (t * t * value for value in spread)
    square, middle, rest = a * a - aa, a * b - ab, b * b - bb
    if a <= 0 or square <= 0:
        return math.nan, math.nan
    root = math.sqrt(max(middle * middle - square * rest, 0.0))
    return max((middle - root) / square, 0.0), (middle + root) / square


def _covariance(a: FloatArray, b: FloatArray) -> float:
    return float(((a - a.mean()) * (b - b.mean())).sum()) / (len(a) - 1)


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
