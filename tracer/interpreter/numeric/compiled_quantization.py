"""Quantises large float32 tensors to 8 bits with one scale, and back, by compiled kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer import limits
from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.support.types import Array

_WORTHWHILE = 1 << 14
"""Elements; below, numpy is as fast."""
_BYTES = tuple(map(np.dtype, ("uint8", "int8")))
_FLOAT = np.dtype(np.float32)


def suits(x: Array, scale: Array, zero: Array | None, dtype: np.dtype[Any]) -> bool:
    """Whether `x` is large, and the conversion is float32 to bytes or back with one scale."""
    convertible = dtype in _BYTES if x.dtype == _FLOAT else x.dtype in _BYTES and dtype == _FLOAT
    single = scale.size == 1 and (zero is None or zero.size == 1)
    return x.size >= _WORTHWHILE and convertible and single and scale.dtype == _FLOAT


def quantize(x: Array, scale: Array, zero: Array | None, dtype: np.dtype[Any]) -> Array:
    """Returns round(x / scale) + zero: half to even, saturated to an 8- or 16-bit type."""
    ends = np.iinfo(dtype)
    numbers = (*_numbers(scale, zero), _FLOAT.type(ends.min), _FLOAT.type(ends.max))
    return _piecewise(loaded("quantization").quantize, x, numbers, dtype)


def dequantize(x: Array, scale: Array, zero: Array | None) -> Array:
    """Returns (x - zero) * scale as float32."""
    return _piecewise(loaded("quantization").dequantize, x, _numbers(scale, zero), _FLOAT)


def _numbers(scale: Array, zero: Array | None) -> tuple[Any, Any]:
    shift = 0 if zero is None else zero.reshape(())
    return scale.reshape(())[()], _FLOAT.type(shift)


def _piecewise(
    kernel: Callable[..., None], x: Array, numbers: tuple[Any, ...], dtype: np.dtype[Any]
) -> Array:
    limits.allow(x.shape, dtype)
    out = buffer_pool.empty(x.shape, dtype)
    source, target = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    parts = parallel.pieces(out.size, parallel.BYTES_BLOCK)
    parallel.run_blocks(
        len(parts), lambda index: kernel(source[parts[index]], *numbers, target[parts[index]])
    )
    return out
