"""Adds two numbers so that a second rounding, to fewer bits, is exact."""

import numpy as np

from tracer.support.types import Array


def odd_sum(a: Array, b: Array) -> Array:
    """Returns a + b in float64, rounded to odd: any later rounding to 51 bits or fewer is exact.

    Where the sum is no float64, the neighbour whose last bit is 1 (Boldo and Melquiond, 2008). The
    error of the sum is exact (Knuth's TwoSum).
    """
    total = np.asarray(a + b)
    part = total - a
    error = (a - (total - part)) + (b - part)
    is_even = (total.view(np.int64) & 1) == 0
    beside = np.nextafter(total, np.copysign(np.inf, error))
    inexact = np.isfinite(total) & (error != 0) & is_even
    return np.where(inexact, beside, total)
