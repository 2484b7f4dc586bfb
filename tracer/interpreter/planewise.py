"""Element-wise arithmetic on large float32 tensors, in one pass over each channel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracer.interpreter import memory, parallel
from tracer.interpreter.compiled import loaded
from tracer.interpreter.values import Array


def suits(x: Array) -> bool:
    """Whether element-wise arithmetic on the planes of `x` is worth the kernels."""
    return x.dtype == np.float32 and x.ndim > 1 and x.size >= 2 * parallel.BLOCK


def affine(x: Array, scale: Array, shift: Array) -> Array:
    """Float32 `x` (N, C, ...) times the scale of its channel, plus its shift."""
    return _by_planes(x, lambda flat, low, high, size, out: loaded("planes").affine(
        flat, low, high, size, scale, shift, out))  # fmt: skip


def relu(x: Array) -> Array:
    """Float32 `x` where it is above 0, else 0."""
    return _by_planes(x, lambda flat, low, high, size, out: loaded("planes").relu(
        flat, low * size, high * size, out))  # fmt: skip


def _by_planes(x: Array, compute: Callable[[Array, int, int, int, Array], None]) -> Array:
    """Compute some (image, channel) planes at a time."""
    out = memory.empty(x.shape, np.float32)
    flat, made = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    planes = x.shape[0] * x.shape[1]
    size = x.size // planes
    parts = parallel.pieces(planes, max(2 * parallel.BLOCK // size, 1))
    parallel.run_blocks(
        len(parts), lambda i: compute(flat, parts[i].start, parts[i].stop, size, made)
    )
    return out
