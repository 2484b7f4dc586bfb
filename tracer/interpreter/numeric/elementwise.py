"""Element-wise numpy functions in cache-sized blocks on threads, with broadcasting."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.interpreter.numeric.tensors import is_narrow, nonnegative_axis
from tracer.support.types import Array

Compute = Callable[..., Any]
"""Called with blocks of the inputs and `out=`, the block of the result, as a ufunc is."""


def apply(compute: Compute, *arrays: Array, dtype: Any = None) -> Array:
    """Applies `compute` to broadcast arrays; `dtype` defaults to the type of the first."""
    shape = broadcast_shape(*arrays)
    kind = arrays[0].dtype if dtype is None else np.dtype(dtype)
    out = buffer_pool.empty_within_limits(shape, kind)
    if out.size < 2 * parallel.BLOCK:
        compute(*arrays, out=out)
        return out
    axis = next(i for i, n in enumerate(shape) if n > 1)
    rows = max(parallel.BLOCK * shape[axis] // out.size, 1)
    parts = parallel.pieces(shape[axis], rows)
    before = (slice(None),) * axis
    inputs = [np.broadcast_to(array, shape) for array in arrays]

    def block(index: int) -> None:
        part = (*before, parts[index])
        compute(*(array[part] for array in inputs), out=out[part])

    parallel.run_blocks(len(parts), block)
    return out


def apply_float(compute: Compute, *arrays: Array) -> Array:
    """Applies `compute` as `apply` does, but in float32 for half precision and float8."""
    dtype = arrays[0].dtype
    if not is_narrow(dtype):
        return apply(compute, *arrays)

    def widened(*blocks: Array, out: Array) -> None:
        wide = np.empty(out.shape, np.float32)
        compute(*(block.astype(np.float32) for block in blocks), out=wide)
        out[...] = wide.astype(dtype)

    return apply(widened, *arrays)


def broadcast_shape(*arrays: Array) -> tuple[int, ...]:
    """Returns the common shape of the arrays. Raises ValueError if there is none."""
    return arrays[0].shape if len(arrays) == 1 else np.broadcast(*arrays).shape


def aligned(a: Array, b: Array, broadcast: int, axis: int | None) -> Array:
    """Reshapes `b` for one-sided broadcasting before opset 7: its axes start at `axis` of `a`."""
    if not broadcast or axis is None:
        return b
    start = nonnegative_axis(axis, a.ndim)
    return b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim))
