"""Histogram bins for relative errors; they are fixed, so that histograms of any data can be added.

Each octave from 2^-60 to 2^60 has 8 bins of the same width, as integers have in `bins`. The first
bin has smaller errors, which count as 0: float64 does not tell them from its own rounding. The last
one has greater and infinite errors.
"""

import numpy as np

from tracer.support.types import IntArray

_FRACTION = 3
"""Eight bins an octave: a limit of a bin is at most an eighth above any error in it."""
_LEAST, _GREATEST = -60, 60
_FRACTION_BITS, _BIAS = 52, 1023  # of a float64
UNUSED_BITS = _FRACTION_BITS - _FRACTION
"""Bits of a float64 that do not tell its bin."""
BELOW = ((_LEAST + _BIAS) << _FRACTION) - 1
"""The other bits of errors in the first bin, or less."""
COUNT = ((_GREATEST - _LEAST) << _FRACTION) + 2
"""The number of bins."""


def upper_limit(position: int) -> float:
    """Returns the number below which all errors of a bin are: 0 for the first, infinite at last."""
    if position == 0:
        return 0.0
    if position == COUNT - 1:
        return float("inf")
    octave, part = divmod(position, 1 << _FRACTION)
    return float(np.ldexp((1 << _FRACTION) + part, octave + _LEAST - _FRACTION))


def percentile(counts: IntArray, percent: int) -> float | None:
    """Returns the limit that so many percent of the counted errors do not exceed.

    It is that of the bin in which the error of this rank lies; None without errors.
    """
    total = int(counts.sum())
    if not total:
        return None
    rank = -(-total * percent // 100)
    return upper_limit(int(np.searchsorted(np.cumsum(counts), rank)))
