"""Histogram bins for integers and for relative errors.

They are fixed, so that histograms of any data can be added. The bins of integers are those of
HdrHistogram (hdrhistogram.org): each small integer has its own bin, and each octave beyond is
divided into equal bins. Negative numbers mirror the others as in two's complement, so no bin
crosses the limit of a width. Each octave of errors from 2^-60 to 2^60 has 8 bins of the same width,
too. The first bin has smaller errors, which count as 0: float64 does not tell them from its own
rounding. The last one has greater and infinite errors.
"""

from functools import cache

import numpy as np

from tracer.support.types import Array, IntArray

BIN_FRACTION = 3
PER_OCTAVE = 1 << BIN_FRACTION
"""Integers from -16 to 15 have bins of their own; other bins are an eighth of an octave wide."""


@cache
def bin_edges() -> Array:
    """Returns the limits of all bins, exact float64, from -2^63: bin i has e_i <= n < e_(i+1)."""
    octaves = [(PER_OCTAVE + part) << octave for octave in range(60) for part in range(PER_OCTAVE)]
    positive = np.array([*range(PER_OCTAVE), *octaves, 1 << 63], np.float64)
    return np.concatenate([-positive[:0:-1], positive])


_ERROR_FRACTION = 3
"""Eight bins an octave: a limit of a bin is at most an eighth above any error in it."""
_LEAST_OCTAVE, _GREATEST_OCTAVE = -60, 60
_FRACTION_BITS, _BIAS = 52, 1023  # of a float64
UNUSED_BITS = _FRACTION_BITS - _ERROR_FRACTION
"""Bits of a float64 that do not tell its bin."""
BELOW_ERRORS = ((_LEAST_OCTAVE + _BIAS) << _ERROR_FRACTION) - 1
"""The other bits of errors in the first bin, or less."""
ERROR_BINS = ((_GREATEST_OCTAVE - _LEAST_OCTAVE) << _ERROR_FRACTION) + 2
"""The number of bins."""


def error_limit(position: int) -> float:
    """Returns the number below which all errors of a bin are: 0 for the first, infinite at last."""
    if position == 0:
        return 0.0
    if position == ERROR_BINS - 1:
        return float("inf")
    octave, part = divmod(position, 1 << _ERROR_FRACTION)
    return float(np.ldexp((1 << _ERROR_FRACTION) + part, octave + _LEAST_OCTAVE - _ERROR_FRACTION))


def error_percentile(counts: IntArray, percent: int) -> float | None:
    """Returns the limit that so many percent of the counted errors do not exceed.

    It is that of the bin in which the error of this rank lies; None without errors.
    """
    total = int(counts.sum())
    if not total:
        return None
    rank = -(-total * percent // 100)
    return error_limit(int(np.searchsorted(np.cumsum(counts), rank)))
