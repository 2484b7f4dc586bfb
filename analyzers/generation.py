"""The speed of whole generations: tokens per second in each phase, with an interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer.records.trace import Generated, Generation, outliers
from tracer.support.statistics import t_quantile
from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class Speed:
    """Mean time of a phase per generation, µs, and tokens of all batch entries per second.

    `low` and `high` are the 95 % confidence interval of `tokens_per_s`; NaN for one generation.
    """

    us: float
    tokens: int
    tokens_per_s: float
    low: float
    high: float


def prefill(generation: Generation, generated: Generated) -> Speed:
    """Returns the speed of the prefill."""
    return _speed([[us] for us in generated.prefill_us], generated.batch * generation.prefill)


def decode(generation: Generation, generated: Generated) -> Speed | None:
    """Returns the speed of all decode steps; None where there are none."""
    if not generation.decode:
        return None
    return _speed(generated.step_us, generated.batch * generation.decode)


def settled_means(times: Sequence[Sequence[float]]) -> tuple[FloatArray, FloatArray]:
    """Returns the mean of each column of `times` (generations × steps), and its standard error.

    Times that something disturbed are left out (see `disturbance.outliers`). The error of a single
    time is NaN.
    """
    columns = np.array(times, np.float64).reshape(len(times), -1).T
    settled = [column[~outliers(column)] for column in columns]
    errors = [c.std(ddof=1) / len(c) ** 0.5 if len(c) > 1 else np.nan for c in settled]
    return np.array([column.mean() for column in settled]), np.array(errors)


def _speed(times: Sequence[Sequence[float]], tokens: int) -> Speed:
    """Returns the speed of inferences (generations × steps) that make `tokens` together."""
    means, errors = settled_means(times)
    mean = float(means.sum())
    half = t_quantile(0.05, max(len(times) - 1, 1)) * float((errors**2).sum()) ** 0.5
    rate, fastest = tokens * 1e6, max(mean - half, mean / 2)
    return Speed(mean, tokens, rate / mean, rate / (mean + half), rate / fastest)
