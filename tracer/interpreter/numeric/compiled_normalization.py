"""Softmax and layer normalisation of float32 rows by compiled kernels."""

import numpy as np

from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import buffer_pool, task_team
from tracer.support.types import Array

_WORTHWHILE = 1 << 13
"""Elements; below, a call costs as much as numpy's."""
_BLOCK = 1 << 14
"""Elements of a block: about 10 us."""


def suits(x: Array) -> bool:
    """Whether `x` is float32 and large enough for the kernels."""
    return x.dtype == np.float32 and x.size >= _WORTHWHILE


def softmax(x: Array) -> Array:
    """Returns the softmax of float32 `x` along the last axis."""
    out = buffer_pool.empty(x.shape, np.float32)
    size = x.shape[-1]
    each = max(_BLOCK // size, 1)
    task_team.share(loaded("normalization").softmax, -(-(x.size // size) // each),
                (np.ascontiguousarray(x), out), (size, each))  # fmt: skip
    return out


def normalize(x: Array, scale: Array, shift: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """Normalises rows of float32 `x`, each as long as `scale`, by their mean and deviation.

    Returns the scaled and shifted rows, and the mean and inverse deviation of each row.
    """
    out = buffer_pool.empty(x.shape, np.float32)
    rows = x.size // scale.size
    means, inverses = (np.empty(rows, np.float32) for _ in range(2))
    each = max(_BLOCK // scale.size, 1)
    arrays = (x, scale, shift, np.array([epsilon], np.float32))
    task_team.share(loaded("normalization").normalize, -(-rows // each),
                (*map(np.ascontiguousarray, arrays), out, means, inverses), (each,))  # fmt: skip
    return out, means, inverses
