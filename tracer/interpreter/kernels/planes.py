"""Element-wise arithmetic on flat float32 tensors, in one pass.

Loops run from 0 over slices, or over unsigned indices: numba lets an index count from the end
unless it sees that it cannot be negative, and LLVM does not vectorise that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

_INT = types.intp
_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")


@njit(types.void(_READ, _INT, _INT, _INT, _READ, _READ, _WRITE), nogil=True, cache=True)
def affine(x: Any, low: int, high: int, size: int, scale: Any, shift: Any, out: Any) -> None:
    """Planes `low` to `high` of `size` elements by the scale and shift of their channel."""
    for plane in range(low, high):
        factor, term = scale[plane % scale.size], shift[plane % scale.size]
        source = x[plane * size : (plane + 1) * size]
        target = out[plane * size : (plane + 1) * size]
        for i in range(size):
            target[i] = source[i] * factor + term


@njit(types.void(_READ, _INT, _INT, _WRITE), nogil=True, cache=True)
def relu(x: Any, low: int, high: int, out: Any) -> None:
    """Elements `low` to `high`, 0 where negative; NaN stays."""
    source, target = x[low:high], out[low:high]
    for i in range(high - low):
        value = source[i]
        target[i] = np.float32(0) if value < 0 else value
