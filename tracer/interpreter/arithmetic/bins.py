"""Fixed bins for integers, so that counts made anywhere add up exactly.

The bins are those of HdrHistogram (hdrhistogram.org): every small integer has one of its own, and
beyond them each octave is cut into as many of equal size. Negative numbers mirror the others as
two's complement does, so no bin lies across the limit of a width.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tracer.interpreter.values import Array

PER_OCTAVE = 8
"""A power of two. Integers from -16 to 15 are counted one by one, others to within an eighth."""

_FRACTION = PER_OCTAVE.bit_length() - 1
_SHIFT = 52 - _FRACTION
_EXPONENT = (1 << 11) - 1
_HALF = 1022
"""A float64 is a sign, 11 bits of exponent, which are 1022 for 0.5, and 52 of the mantissa."""


@cache
def edges() -> Array:
    """The limits of all bins, float64 and exact, from -2^63 to 2^63: bin i has e_i <= n < e_i+1."""
    octaves = [(PER_OCTAVE + part) << octave for octave in range(60) for part in range(PER_OCTAVE)]
    positive = np.array([*range(PER_OCTAVE), *octaves, 1 << 63], np.float64)
    return np.concatenate([-positive[:0:-1], positive])


def keys(values: Array) -> Array:
    """One number, int64 and not negative, for all values of a bin; `values` are int64.

    It is the sign, the exponent and the first bits of the mantissa of the value as a float64.
    Half more makes -1 and 0, -2 and 1, and so on mirror images, and leaves no 0, which has no
    exponent.
    """
    made = (_coarse(values) + 0.5).view(np.uint64)
    made >>= np.uint64(_SHIFT)
    return made.view(np.int64)


def count(made: Array) -> Array:
    """How many of `keys` are in each bin: int64 (bins,)."""
    return np.bincount(made.ravel(), minlength=int(_places().max()) + 1)[_places()]


def widths(made: Array) -> Array:
    """Bits of two's complement that hold the values behind `keys`: int64, 1 to 64."""
    return (made >> _FRACTION & _EXPONENT) - (_HALF - 1)


@cache
def _places() -> Array:
    """The key of every bin."""
    return keys(edges()[:-1].astype(np.int64))


def _coarse(values: Array) -> Array:
    """The same with the last bits of huge numbers cleared, which would round to the next bin."""
    if not values.size or (values.max() < 1 << 51 and values.min() >= -(1 << 51)):
        return values
    signs = values >> 63
    mirrored = values ^ signs
    return np.where(mirrored >> 51, mirrored & ~0xFFF, mirrored) ^ signs
