"""Element-wise float32 arithmetic by compiled kernels: affine, Relu, Add to Div, rationals."""

from collections.abc import Sequence

import numpy as np

from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import buffer_pool, task_team
from tracer.support.types import Array

_WORTHWHILE = 1 << 13
"""Elements; below, a call costs as much as numpy's."""
_BLOCK = 1 << 15
"""Elements of a block: about 10 us, within the second-level cache."""
_OPERATIONS = {"Add": "ADD", "Sub": "SUBTRACT", "Mul": "MULTIPLY", "Div": "DIVIDE"}


def suits(x: Array) -> bool:
    """Whether `x` is float32 and large enough for the kernels."""
    return x.size >= _WORTHWHILE and x.ndim > 1 and x.dtype == np.float32


def affine(x: Array, scale: Array, shift: Array) -> Array:
    """Returns float32 `x` (N, C, ...) times the scale of each channel, plus its shift."""
    out = buffer_pool.empty(x.shape, np.float32)
    planes = x.shape[0] * x.shape[1]
    size = x.size // planes
    each = max(_BLOCK // size, 1)
    task_team.share(loaded("elementwise").affine, -(-planes // each),
                (np.ascontiguousarray(x), scale, shift, out), (planes, each, size))  # fmt: skip
    return out


def relu(x: Array) -> Array:
    """Returns max(x, 0) of float32 `x`."""
    out = buffer_pool.empty(x.shape, np.float32)
    task_team.share(loaded("elementwise").relu, -(-x.size // _BLOCK),
                (np.ascontiguousarray(x), out), (_BLOCK,))  # fmt: skip
    return out


def pairs(a: Array, b: Array) -> bool:
    """Whether the kernels support `a` with `b` broadcast over missing leading axes."""
    if not suits(a) or b.dtype != a.dtype or not a.flags.c_contiguous:
        return False
    if b.shape == a.shape:
        return b.flags.c_contiguous
    repeats = b.ndim <= a.ndim and b.size <= _BLOCK
    return repeats and (b.size == 1 or b.shape == a.shape[a.ndim - b.ndim :])


def binary(name: str, a: Array, b: Array) -> Array:
    """Computes Add, Sub, Mul or Div of two float32 tensors that `pairs` accepts."""
    kernels = loaded("elementwise")
    out = buffer_pool.empty(a.shape, np.float32)
    each = _BLOCK if b.size > _BLOCK else _BLOCK // b.size * b.size
    operation = getattr(kernels, _OPERATIONS[name])
    task_team.share(kernels.binary, -(-a.size // each), (a, np.ascontiguousarray(b), out),
                (operation, each))  # fmt: skip
    return out


def ratio(
    x: Array, top: Sequence[float], bottom: Sequence[float], far: float, most: float
) -> Array:
    """Returns x P(x^2) / Q(x^2), with float32 `x` clipped to ±far and the result to ±most.

    `top` and `bottom` are the six coefficients of P and Q, highest power first.
    """
    out = buffer_pool.empty(x.shape, np.float32)
    coefficients = np.array([*top, *bottom, far, most], np.float32)
    task_team.share(loaded("elementwise").ratio, -(-x.size // _BLOCK),
                (np.ascontiguousarray(x), coefficients, out), (_BLOCK,))  # fmt: skip
    return out
