"""Is one time longer than another: their ratio, its interval, and a test, all from one formula.

The ratio of two means has Fieller's interval (Fieller, Some problems in interval estimation, 1954):
the ratios r for which `b - r a` is not told from 0 by Student's t. It agrees with the test: 1 lies
outside exactly where the test finds a difference.

What is systematic about a time, such as the profiler's cost and its clock, is the same in every
round: its variance is added to that of the mean, however many rounds there were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.statistics import t_p_value, t_quantile
from tracer.support.types import FloatArray

LEVEL = 0.01
"""Of tests and intervals. Stricter than the 5 % of false alarms that are promised, because rounds
on a machine that others use too are not as alike as a formula takes them to be."""

_BATCHES = 30
_MOST_DOF = 500
"""Student's t is normal from there on, to a thousandth."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A mean (µs), its standard error, and the degrees of freedom of that; 0 where not known.

    `rounds` are the measurements that were taken in turn with those of the other side, if any.
    `systematic` is the standard deviation of what no number of rounds averages away.
    """

    mean: float
    error: float
    dof: int
    rounds: FloatArray | None = None
    systematic: float = 0.0


@dataclass(frozen=True, slots=True)
class Contrast:
    """Ratio of the second mean to the first; NaN for what cannot be told.

    `low` and `high` bound it with confidence 1 - LEVEL; `p` is the chance of a difference as large
    as this or larger where there is none.
    """

    ratio: float
    low: float
    high: float
    p: float


def of_rounds(rounds: FloatArray) -> Sample:
    """The sample of one side of rounds taken in turn."""
    error = math.sqrt(_variance_of_mean(rounds, rounds)) if len(rounds) > 1 else math.nan
    return Sample(float(rounds.mean()), error, len(rounds) - 1, rounds)


def of_runs(runs: FloatArray) -> Sample:
    """The sample of runs that followed each other: medians of up to 30 consecutive batches.

    Runs next to each other are alike; batches long enough are nearly independent (see
    `analyzers.statistics.ci95_half`), and a median does not mind a run that was disturbed.
    """
    batches = min(_BATCHES, len(runs))
    size = len(runs) // batches
    even = runs[len(runs) - size * batches :].reshape(batches, size)
    found = of_rounds(np.median(even, axis=1))
    return Sample(found.mean, found.error, found.dof)


def contrast(first: Sample, second: Sample) -> Contrast:
    """Compare two means: pair by pair where both were measured in turn, else as strangers."""
    ratio = second.mean / first.mean if first.mean > 0 else math.nan
    if min(first.dof, second.dof) < 1:
        return Contrast(ratio, math.nan, math.nan, math.nan)
    aa, ab, bb, dof = _spread(first, second, ratio)
    difference, variance = second.mean - first.mean, aa - 2 * ab + bb
    if variance <= 0:  # a clock of whole µs did not move: nobody knows how sure that is
        return Contrast(ratio, math.nan, math.nan, math.nan)
    low, high = _fieller(first.mean, second.mean, (aa, ab, bb), t_quantile(LEVEL, dof))
    return Contrast(ratio, low, high, t_p_value(difference / math.sqrt(variance), dof))


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted for being several (Holm, A simple sequentially rejective test, 1979).

    Comparing them with LEVEL keeps the chance of even one false alarm among them below it. NaN
    stays NaN and counts for nothing.
    """
    known = sorted((value, place) for place, value in enumerate(p) if not math.isnan(value))
    found, worst = [math.nan] * len(p), 0.0
    for rank, (value, place) in enumerate(known):
        worst = max(worst, min(1.0, (len(known) - rank) * value))
        found[place] = worst
    return found


def _spread(first: Sample, second: Sample, ratio: float) -> tuple[float, float, float, int]:
    """Variances and covariance of the two means, and the degrees of freedom of their difference."""
    aa, ab, bb, dof = _random_spread(first, second, ratio)
    systematic = first.systematic**2 + second.systematic**2
    varying = aa - 2 * ab + bb
    if systematic > 0:  # as Welch has it, for a variance that is known beside one from rounds
        grown = 1 + systematic / varying if varying > 0 else math.inf
        dof = int(min(dof * grown**2, _MOST_DOF))
    return aa + first.systematic**2, ab, bb + second.systematic**2, dof


def _random_spread(first: Sample, second: Sample, ratio: float) -> tuple[float, float, float, int]:
    """The same of what varies from round to round."""
    a, b = first.rounds, second.rounds
    if a is not None and b is not None and len(a) == len(b):
        slack = _inflation(b - (ratio if math.isfinite(ratio) else 1.0) * a)
        pairs = ((a, a), (a, b), (b, b))
        aa, ab, bb = (_covariance(x, y) / len(a) * slack for x, y in pairs)
        return aa, ab, bb, first.dof
    aa, bb = first.error**2, second.error**2
    return aa, 0.0, bb, _welch(aa, first.dof, bb, second.dof)


def _welch(aa: float, dof_a: int, bb: float, dof_b: int) -> int:
    """Degrees of freedom of a difference (Welch, 1947), rounded down."""
    whole = aa**2 / dof_a + bb**2 / dof_b
    return int((aa + bb) ** 2 / whole) if whole > 0 else min(dof_a, dof_b)


def _fieller(
    a: float, b: float, spread: tuple[float, float, float], t: float
) -> tuple[float, float]:
    """The ratios r with (b - r a)² <= t² (bb - 2 r ab + r² aa); NaN where they have no bound."""
    aa, ab, bb = (t * t * value for value in spread)
    square, middle, rest = a * a - aa, a * b - ab, b * b - bb
    if a <= 0 or square <= 0:
        return math.nan, math.nan
    root = math.sqrt(max(middle * middle - square * rest, 0.0))
    return max((middle - root) / square, 0.0), (middle + root) / square


def _variance_of_mean(a: FloatArray, b: FloatArray) -> float:
    return _covariance(a, b) / len(a) * _inflation(a)


def _covariance(a: FloatArray, b: FloatArray) -> float:
    return float(((a - a.mean()) * (b - b.mean())).sum()) / (len(a) - 1)


def _inflation(series: FloatArray) -> float:
    """How much more the mean of a series varies than one of independent values, at least 1.

    (1 + r) / (1 - r) for a correlation r of neighbours (Law, Simulation Modeling and Analysis, 5th
    ed., 4.4); one that is negative would make the test bolder, and is not believed.
    """
    centred = series - series.mean()
    power = float((centred**2).sum())
    if power <= 0:
        return 1.0
    neighbours = float((centred[1:] * centred[:-1]).sum()) / power
    neighbours = min(max(neighbours, 0.0), 0.9)
    return (1 + neighbours) / (1 - neighbours)
