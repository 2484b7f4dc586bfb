"""Max pooling with 2 x 2 windows, which the compiler vectorises."""

from typing import Any

import numpy as np
from numba import njit, types

from tracer.interpreter.compiled_code import entry

_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")
_INT = types.intp


@entry(
    lambda x, height, width, lines, columns, out: (
        0 < 2 * lines <= height
        and 0 < 2 * columns <= width
        and x.size * lines * columns == out.size * height * width
    )
)
@njit(
    types.void(_READ, _INT, _INT, _INT, _INT, _WRITE),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def halve(x: Any, height: int, width: int, lines: int, columns: int, out: Any) -> None:
    """Writes the maximum of adjacent 2 x 2 windows of flat planes (height, width).

    NaN counts as the largest. Indices are unsigned, see `elementwise`.
    """
    target, two = np.uintp(0), np.uintp(2)
    for plane in range(out.size // (lines * columns)):
        for line in range(lines):
            above = np.uintp((plane * height + 2 * line) * width)
            below = above + np.uintp(width)
            for i in range(np.uintp(columns)):
                here, there = above + i * two, below + i * two
                top = x[here]
                for value in (x[here + np.uintp(1)], x[there], x[there + np.uintp(1)]):
                    top = value if (value > top) | (value != value) else top
                out[target + i] = top
            target += np.uintp(columns)
