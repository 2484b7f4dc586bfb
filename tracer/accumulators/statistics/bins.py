"""Fixed bins for integers, so that counts made anywhere add up exactly.

The bins are those of HdrHistogram (hdrhistogram.org): every small integer has one of its own, and
beyond them each octave is cut into as many of equal size. Negative numbers mirror the others as
two's complement does, so no bin lies across the limit of a width.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tracer.support.types import Array

FRACTION = 3
PER_OCTAVE = 1 << FRACTION
"""Integers from -16 to 15 are counted one by one, others to within an eighth."""


@cache
def edges() -> Array:
    """The limits of all bins, float64 and exact, from -2^63 to 2^63: bin i has e_i <= n < e_i+1."""
    octaves = [(PER_OCTAVE + part) << octave for octave in range(60) for part in range(PER_OCTAVE)]
    positive = np.array([*range(PER_OCTAVE), *octaves, 1 << 63], np.float64)
    return np.concatenate([-positive[:0:-1], positive])
