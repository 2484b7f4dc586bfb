"""Quantises float32 to 8 or 16 bits and back in one pass, as `ops.quantization` does."""

from typing import Any

import numpy as np
from numba import njit, types

from tracer.interpreter.compiled_code import entry

_FLOAT = types.float32
_READ = types.Array(_FLOAT, 1, "C", readonly=True)
_BYTES = (types.uint8, types.int8)

_MAGIC = np.float32(3 << 22)
"""Adding and subtracting it rounds a float32 below 2^22 to an integer."""


@entry(lambda x, scale, zero, low, high, out: x.size == out.size)
@njit(
    [types.void(_READ, _FLOAT, _FLOAT, _FLOAT, _FLOAT, types.Array(kind, 1, "C"))
     for kind in (*_BYTES, types.int16)],
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def quantize(x: Any, scale: Any, zero: Any, low: Any, high: Any, out: Any) -> None:
    """round(x / scale) + zero, half to even, clipped to [low, high], which lie within 2^21.

    The bounds are integers, so clipping first gives the same. NaN becomes what it converts to.
    """
    least, most = _FLOAT(low - zero), _FLOAT(high - zero)
    for i in range(x.size):
        ratio = _FLOAT(x[i] / scale)
        ratio = least if ratio < least else ratio
        ratio = most if ratio > most else ratio
        rounded = _FLOAT(_FLOAT(ratio + _MAGIC) - _MAGIC)
        out[i] = np.int32(_FLOAT(rounded + zero))


@entry(lambda x, scale, zero, out: x.size == out.size)
@njit(
    [types.void(types.Array(kind, 1, "C", readonly=True), _FLOAT, _FLOAT,
                types.Array(_FLOAT, 1, "C")) for kind in _BYTES],
    nogil=True, cache=True,
)  # fmt: skip
def dequantize(x: Any, scale: Any, zero: Any, out: Any) -> None:
    """(x - zero) * scale."""
    for i in range(x.size):
        out[i] = _FLOAT(_FLOAT(_FLOAT(x[i]) - zero) * scale)
