"""Relative errors of float sums and their bins, in numpy."""

from __future__ import annotations

import numpy as np

from tracer.accumulators.statistics import float_partial_sums


def relative_errors(values: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|value - exact| / |exact|, float64: 0 for equal numbers, infinities included."""
    with np.errstate(all="ignore"):
        errors = np.abs(values - exact) / np.abs(exact)
    errors[values == exact] = 0.0
    errors[np.isnan(errors)] = np.inf  # infinity instead of another infinity
    return errors


def histogram(errors: np.ndarray) -> np.ndarray:
    """How many of `errors`, float64 >= 0, are between the limits of each bin."""
    limits = [
        float_partial_sums.error_limit(position)
        for position in range(float_partial_sums.ERROR_BINS - 1)
    ]
    limits[0] = 2.0**-60
    positions = np.searchsorted(limits, errors, side="right")
    return np.bincount(positions, minlength=float_partial_sums.ERROR_BINS)
