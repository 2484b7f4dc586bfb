"""Summaries of repeated measurements, and how far to trust their mean."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracer.support.types import FloatArray

BATCHES = 30
"""Most batches of consecutive runs whose means count as independent measurements."""

_OUTLIER_DEVIATIONS = 10.0
_MAD_TO_SIGMA = 1.4826
_OUTLIER_SHARE = 1.5
_MOST_OUTLIERS = 0.2
_CLOCK_TICK_US = 1.0


@dataclass(frozen=True, slots=True)
class Summary:
    """One array per figure, an entry a column of the samples, in the samples' unit."""

    mean: FloatArray
    p50: FloatArray
    p95: FloatArray
    min: FloatArray
    std: FloatArray
    ci95_half: FloatArray


def summarize(samples: FloatArray) -> Summary:
    """Summary of each column of `samples` (runs × columns)."""
    p50, p95 = np.percentile(samples, [50, 95], axis=0)
    one = len(samples) < 2
    return Summary(
        mean=samples.mean(axis=0),
        p50=p50,
        p95=p95,
        min=samples.min(axis=0),
        std=np.full(samples.shape[1:], np.nan) if one else samples.std(axis=0, ddof=1),
        ci95_half=ci95_half(samples),
    )


def ci95_half(samples: FloatArray) -> FloatArray:
    """Half the width of a 95 % confidence interval of the mean of each column; NaN for one run.

    Runs that follow each other are alike (caches, clock speed, neighbours), which makes the usual
    formula too sure. The method of batch means takes the means of up to 30 consecutive batches,
    long enough to be nearly independent, as the sample (Law, Simulation Modeling and Analysis,
    5th ed., 9.5.3).
    """
    if len(samples) < 2:
        return np.full(samples.shape[1:], np.nan)
    means = in_batches(samples).mean(axis=1)
    error: FloatArray = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    return t_quantile(0.05, len(means) - 1) * error


def in_batches(samples: FloatArray) -> FloatArray:
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


def t_quantile(level: float, dof: int) -> float:
    """Returns the t that |T| exceeds with probability `level`, for Student's t distribution."""
    from scipy.special import stdtrit  # 0.35 s

    return float(stdtrit(dof, 1 - level / 2))


def t_p_value(t: float, dof: int) -> float:
    """Returns P(|T| > |t|) for Student's t distribution with `dof` degrees of freedom."""
    from scipy.special import stdtr

    return float(2 * stdtr(dof, -abs(t)))


def outliers(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Which runs (µs) something disturbed: far above the median by spread and by share.

    The spread is robust (median absolute deviation), and never below a tick of a clock that
    counts whole µs. If more than a fifth of the runs are so slow, none is an outlier: the machine
    has two speeds, and other runs were left in whose median is the slow one.
    """
    median = float(np.median(values))
    spread = max(_MAD_TO_SIGMA * float(np.median(np.abs(values - median))), _CLOCK_TICK_US)
    limit = max(median + _OUTLIER_DEVIATIONS * spread, _OUTLIER_SHARE * median)
    slow: npt.NDArray[np.bool_] = values > limit
    return slow if slow.mean() <= _MOST_OUTLIERS else np.zeros_like(slow)
