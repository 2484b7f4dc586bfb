"""The compiled triad a = b + s c; numpy would read its arrays twice."""

from __future__ import annotations

import numba
from numba import njit

_LINE = numba.types.Array(numba.float64, 1, "C")


@njit(numba.void(_LINE, _LINE, _LINE, numba.float64), nogil=True, cache=True)
def triad(a, b, c, factor):  # type: ignore[no-untyped-def]
    """a = b + factor c, element by element; float64, all of one length."""
    for i in range(len(a)):
        a[i] = b[i] + factor * c[i]
