"""Summaries of repeated measurements, and how far to trust their mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracer.support.types import FloatArray

_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""0.975 quantile of Student's t for 1 to 30 degrees of freedom (NIST handbook, 1.3.6.7.2)."""

_BATCHES = 30
_OUTLIER_DEVIATIONS = 10.0
_MAD_TO_SIGMA = 1.4826
_OUTLIER_SHARE = 1.5
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
    batches = min(_BATCHES, len(samples))
    if batches < 2:
        return np.full(samples.shape[1:], np.nan)
    size = len(samples) // batches
    even = samples[len(samples) - size * batches :]  # the oldest runs are the least settled
    means = even.reshape(batches, size, *samples.shape[1:]).mean(axis=1)
    error: FloatArray = means.std(axis=0, ddof=1) / np.sqrt(batches)
    return _T_975[batches - 2] * error


def outliers(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Which runs (µs) something disturbed: far above the median by spread and by share.

    The spread is robust (median absolute deviation), and never below a tick of a clock that
    counts whole µs.
    """
    median = float(np.median(values))
    spread = max(_MAD_TO_SIGMA * float(np.median(np.abs(values - median))), _CLOCK_TICK_US)
    return values > max(median + _OUTLIER_DEVIATIONS * spread, _OUTLIER_SHARE * median)
