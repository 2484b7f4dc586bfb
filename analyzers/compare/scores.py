"""The accuracy of two sides of a comparison on the same samples."""

import math
from dataclasses import dataclass

from tracer.analyzers.compare.contrast import LEVEL
from tracer.support.statistics import t_quantile
from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a side by a metric, as a mean over `samples` of a data set.

    Values have the unit of the metric. `first_value` is the mean of the first side, `change` the
    difference from it, and `low` and `high` the ends of its interval. They are NaN for a metric
    that compares with the outputs of the first side, the ends also for a single sample.
    """

    side: str
    metric: str
    unit: str
    data: str
    samples: int
    value: float
    first_value: float = math.nan
    change: float = math.nan
    low: float = math.nan
    high: float = math.nan


def scored(
    side: str, metric: str, unit: str, data: str, own: FloatArray, first: FloatArray | None
) -> Scores:
    """Returns the scores of a side from those of each sample (N,), and from the first side's.

    The interval of the change is Student's over the samples, which are taken as independent. A
    sample that is hard for one side is hard for the other, so the differences of samples scatter
    less than the scores.
    """
    if first is None:
        return Scores(side, metric, unit, data, len(own), float(own.mean()))
    differences = own - first
    change, half = float(differences.mean()), _half_width(differences)
    ends = change - half, change + half
    return Scores(
        side, metric, unit, data, len(own), float(own.mean()), float(first.mean()), change, *ends
    )


def _half_width(values: FloatArray) -> float:
    if len(values) < 2:
        return math.nan
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return t_quantile(LEVEL, len(values) - 1) * error
