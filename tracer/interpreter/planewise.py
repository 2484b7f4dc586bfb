"""Element-wise arithmetic on float32 tensors by compiled kernels, in one pass over each channel."""

from __future__ import annotations

import numpy as np

from tracer.interpreter import memory, tasks
from tracer.interpreter.compiled import loaded
from tracer.interpreter.values import Array

_WORTHWHILE = 1 << 13
"""Elements from which the kernels are used: below, a call costs as much as numpy's."""
_BLOCK = 1 << 15
"""Elements of a block: some 10 us, and within the second-level cache."""


def suits(x: Array) -> bool:
    """Whether element-wise arithmetic on the planes of `x` is worth the kernels."""
    return x.dtype == np.float32 and x.ndim > 1 and x.size >= _WORTHWHILE


def affine(x: Array, scale: Array, shift: Array) -> Array:
    """Float32 `x` (N, C, ...) times the scale of its channel, plus its shift."""
    out = memory.empty(x.shape, np.float32)
    planes = x.shape[0] * x.shape[1]
    size = x.size // planes
    each = max(_BLOCK // size, 1)
    tasks.share(loaded("planes").affine, -(-planes // each),
                (np.ascontiguousarray(x), scale, shift, out), (planes, each, size))  # fmt: skip
    return out


def relu(x: Array) -> Array:
    """Float32 `x` where it is above 0, else 0."""
    out = memory.empty(x.shape, np.float32)
    tasks.share(loaded("planes").relu, -(-x.size // _BLOCK),
                (np.ascontiguousarray(x), out), (_BLOCK,))  # fmt: skip
    return out
