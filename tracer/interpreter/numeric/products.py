"""Matrix products: in blocks on threads, exact for integers, in float32 for half floats."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from tracer.interpreter.numeric import buffer_pool, compiled, parallel
from tracer.interpreter.numeric.tensors import flat, is_half
from tracer.support.types import Array

Product = Callable[[Array, Array, Array], Any]
"""Writes the matrix product of (M, K) and (K, P) into (M, P); a seam for other arithmetic."""

Multiply = Callable[[Array, Array], Array]
"""Computes numpy's matmul."""
_REPLACEMENT: ContextVar[Multiply | None] = ContextVar("replacement", default=None)

_SPLIT = 1 << 23
"""Multiplications; smaller products are not split."""
_NARROWEST = 48
"""Least rows or columns of a block: BLAS is slow below."""
_BLOCKS = 8


def blas(a: Array, b: Array, out: Array) -> None:
    """Multiplies by BLAS in one call."""
    np.matmul(a, b, out=out)


def split(a: Array, b: Array, out: Array) -> None:
    """Multiplies in blocks on threads: by compiled kernels for large float32, else by BLAS."""
    (rows, depth), columns = a.shape, b.shape[1]
    if out.flags.c_contiguous and compiled.takes_product(a.dtype, rows, depth, columns):
        compiled.matmul(a[None], b[None], out[None])
        return
    if rows * depth * columns < _SPLIT:
        np.matmul(a, b, out=out)
        return
    by_rows = rows > columns
    longer = max(rows, columns)
    parts = parallel.pieces(longer, max(_NARROWEST, -(-longer // _BLOCKS)))

    def block(index: int) -> None:
        part = parts[index]
        if by_rows:
            np.matmul(a[part], b, out=out[part])
        else:
            np.matmul(a, b[:, part], out=out[:, part])

    parallel.run_blocks(len(parts), block)


@contextmanager
def replaced(multiply: Multiply) -> Iterator[None]:
    """Lets `multiply` compute what this thread asks of `matmul`: a seam for other arithmetic."""
    token = _REPLACEMENT.set(multiply)
    try:
        yield
    finally:
        _REPLACEMENT.reset(token)


def replacement() -> Product | None:
    """Returns what takes the place of BLAS in this thread, None where BLAS multiplies."""
    multiply = _REPLACEMENT.get()
    if multiply is None:
        return None

    def product(a: Array, b: Array, out: Array) -> None:
        out[...] = multiply(a, b)

    return product


def matmul(a: Array, b: Array) -> Array:
    """Computes numpy's matmul in blocks; half precision is multiplied in float32."""
    multiply = _REPLACEMENT.get()
    if multiply is not None:
        return multiply(a, b)
    if is_half(a.dtype):
        return matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    if a.ndim < 2 or b.ndim < 2 or a.dtype.kind not in "f":
        return np.matmul(a, b)
    batch = a.shape[:-2] if b.ndim == 2 else np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    out = buffer_pool.empty_within_limits(shape, a.dtype)
    if b.ndim == 2:  # one product of all rows
        split(flat(a, 0, -1), b, flat(out, 0, -1))
        return out
    if out.size * a.shape[-1] < _SPLIT:
        return np.matmul(a, b, out=out)
    targets = out.reshape(-1, *shape[-2:])  # all have elements here
    lefts = np.broadcast_to(a, (*batch, *a.shape[-2:])).reshape(-1, *a.shape[-2:])
    rights = np.broadcast_to(b, (*batch, *b.shape[-2:])).reshape(-1, *b.shape[-2:])
    rows, depth = a.shape[-2:]
    if compiled.takes_product(a.dtype, rows, depth, b.shape[-1]):
        compiled.matmul(lefts, rights, targets)
        return out
    if len(targets) < 4:
        for left, right, target in zip(lefts, rights, targets, strict=True):
            split(left, right, target)
        return out

    def block(index: int) -> None:
        np.matmul(lefts[index], rights[index], out=targets[index])

    parallel.run_blocks(len(targets), block)
    return out


def integers(a: Array, b: Array, out: Array) -> None:
    """Multiplies integer matrices exactly, by float BLAS where floats are exact."""
    kind = carrier(a, b, a.shape[1])
    sums = np.empty(out.shape, kind)
    split(a.astype(kind), b.astype(kind), sums)
    out[...] = sums.astype(np.int64)


def carrier(a: Array, b: Array, depth: int) -> np.dtype[Any]:
    """Returns the fastest type with exact sums of `depth` products of integers, in any order.

    float32 holds integers up to 2^24, float64 up to 2^53.
    """
    bound = depth * _largest(a) * _largest(b)
    exact = ((1 << 24, np.float32), (1 << 53, np.float64))
    return np.dtype(next((kind for limit, kind in exact if bound <= limit), np.int64))


def _largest(array: Array) -> int:
    return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0
