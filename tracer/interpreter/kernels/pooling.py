"""Poolings whose windows are known beforehand, so that they are vectorised."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")
_INT = types.intp


@njit(
    types.void(_READ, _INT, _INT, _INT, _INT, _WRITE),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def halve(x: Any, height: int, width: int, lines: int, places: int, out: Any) -> None:
    """The largest of two times two of flat planes (height, width), side by side, from the first on.

    NaN counts as larger than all. Indices are unsigned, see `planes`.
    """
    place, two = np.uintp(0), np.uintp(2)
    for plane in range(out.size // (lines * places)):
        for line in range(lines):
            above = np.uintp((plane * height + 2 * line) * width)
            below = above + np.uintp(width)
            for i in range(np.uintp(places)):
                here, there = above + i * two, below + i * two
                top = x[here]
                for value in (x[here + np.uintp(1)], x[there], x[there + np.uintp(1)]):
                    top = value if (value > top) | (value != value) else top
                out[place + i] = top
            place += np.uintp(places)
