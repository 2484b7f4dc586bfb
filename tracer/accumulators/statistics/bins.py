"""Histogram bins for integers; they are fixed, so that histograms of any data can be added.

The bins of HdrHistogram (hdrhistogram.org): each small integer has its own bin, and each octave
beyond is divided into equal bins. Negative numbers mirror the others as in two's complement, so
no bin crosses the limit of a width.
"""

from functools import cache

import numpy as np

from tracer.support.types import Array

FRACTION = 3
PER_OCTAVE = 1 << FRACTION
"""Integers from -16 to 15 have bins of their own; other bins are an eighth of an octave wide."""


@cache
def edges() -> Array:
    """Returns the limits of all bins, exact float64, from -2^63: bin i has e_i <= n < e_(i+1)."""
    octaves = [(PER_OCTAVE + part) << octave for octave in range(60) for part in range(PER_OCTAVE)]
    positive = np.array([*range(PER_OCTAVE), *octaves, 1 << 63], np.float64)
    return np.concatenate([-positive[:0:-1], positive])
