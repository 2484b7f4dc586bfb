"""Arrays of operators: axes, narrow floats, packed weights, reused memory, functions in blocks.

Memory of results that nothing refers to any more is reused, within a run and across runs: a new
array of megabytes costs a page fault per 4 KiB; a reused one is still in the cache.

onnxruntime's ContribOperators.md defines the layout (MatMulNBits, QMoE, GatherBlockQuantized).
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_SMALLEST = 1 << 16
"""Bytes; the allocator is fast below."""
_MOST = 24
"""Buffers per pool."""
_SLACK = 1.5
"""A buffer may be 1.5 times as large as the request."""


class Pool:
    """Buffers of one run at a time, the most recently used last."""

    def __init__(self) -> None:
        self._buffers: list[Array] = []

    def take(self, nbytes: int) -> Array:
        """Returns a buffer of at least `nbytes` that no array refers to, or a new one."""
        for index in range(len(self._buffers) - 1, -1, -1):
            size = self._buffers[index].nbytes
            # Two references: our list and the call. Every view of the buffer is another one.
            if nbytes <= size <= _SLACK * nbytes and sys.getrefcount(self._buffers[index]) == 2:
                self._buffers.append(self._buffers.pop(index))
                return self._buffers[-1]
        self._buffers.append(np.empty(nbytes, np.uint8))
        if len(self._buffers) > _MOST:
            self._buffers.pop(0)
        return self._buffers[-1]


_POOL: ContextVar[Pool | None] = ContextVar("pool", default=None)


@contextmanager
def pooled(idle: list[Pool]) -> Iterator[None]:
    """Lets `empty` reuse buffers during a run, from an idle pool if there is one.

    The pool becomes idle again afterwards; arrays that the caller still refers to are not reused.
    """
    try:
        pool = idle.pop()
    except IndexError:  # the first run, or a concurrent one
        pool = Pool()
    token = _POOL.set(pool)
    try:
        yield
    finally:
        _POOL.reset(token)
        idle.append(pool)


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """Returns an uninitialised array as `np.empty` does, from the pool if it is large."""
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    pool = _POOL.get()
    if pool is None or nbytes < _SMALLEST or kind.hasobject:
        return np.empty(tuple(shape), kind)
    return pool.take(nbytes)[:nbytes].view(kind).reshape(shape)


def empty_within_limits(shape: Sequence[int], dtype: Any) -> Array:
    """Returns an array as `empty` does. Raises LimitError for one beyond the limits in force."""
    limits.allow(shape, dtype)
    return empty(shape, dtype)


Compute = Callable[..., Any]
"""Called with blocks of the inputs and `out=`, the block of the result, as a ufunc is."""


def nonnegative_axis(axis: int, rank: int) -> int:
    """Returns the axis counted from the start. Raises ModelError for an axis out of range."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} of a tensor with {rank} axes")
    return int(axis) % rank


def nonnegative_axes(axes: Iterable[int] | None, rank: int) -> list[int]:
    """Returns the axes as `nonnegative_axis` does; None are all of them."""
    return list(range(rank)) if axes is None else [nonnegative_axis(a, rank) for a in axes]


def flat(x: Array, start: int, stop: int) -> Array:
    """Returns `x` with its axes from `start` to `stop` - 1 as one, which may be empty.

    numpy cannot tell the size of an axis of -1 where another one is 0.
    """
    shape = x.shape
    return x.reshape(*shape[:start], math.prod(shape[start:stop]), *shape[stop:])


def are_indices(values: Array, stop: int) -> bool:
    """Whether all values are from 0 to `stop` - 1."""
    return not values.size or bool(0 <= values.min() <= values.max() < stop)


@cache
def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is float16 or bfloat16."""
    return dtype.name in ("float16", "bfloat16")


@cache
def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is float16, bfloat16 or a float8."""
    return is_half(dtype) or dtype.name.startswith("float8")


def widened(x: Array) -> Array:
    """Returns `x`, in float32 if it is float16 or bfloat16."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def apply(compute: Compute, *arrays: Array, dtype: Any = None) -> Array:
    """Applies `compute` to broadcast arrays; `dtype` defaults to the type of the first."""
    shape = broadcast_shape(*arrays)
    kind = arrays[0].dtype if dtype is None else np.dtype(dtype)
    out = empty_within_limits(shape, kind)
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


_MOST_AT_ONCE = 32
"""Arrays that every numpy broadcasts at once, in a tenth of the time that shapes take."""


def broadcast_shape(*arrays: Array) -> tuple[int, ...]:
    """Returns the common shape of the arrays. Raises ValueError if there is none."""
    if len(arrays) > _MOST_AT_ONCE:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    return arrays[0].shape if len(arrays) == 1 else np.broadcast(*arrays).shape


BITS = (2, 4, 8)
"""Widths of a packed weight."""

_ROWS_BYTES = 8 << 20
"""Bytes of the float32 weights that are unpacked at a time: they stay in the caches."""


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """A matrix [rows, depth] whose weights are (code - zero) * scale.

    `codes` is uint8 [rows, bytes], the bits of a row, low bits first, its last block filled up.
    `scales` is [rows, blocks]; so is `zeros`, of codes or of floats.
    """

    codes: Array
    scales: Array
    zeros: Array
    bits: int
    block: int
    depth: int

    def pieces(self) -> list[slice]:
        """Returns slices of rows that unpack to a bounded number of bytes."""
        step = max(1, _ROWS_BYTES // (4 * max(1, self.scales.shape[1] * self.block)))
        return parallel.pieces(len(self.codes), step)

    def centred(self, rows: slice | Array) -> Array:
        """Returns code - zero of some rows as float32 [rows, blocks, block], padding included."""
        blocks = self.scales.shape[1]
        codes = unpacked(self.codes[rows], self.bits, blocks * self.block)
        whole = codes.reshape(len(codes), blocks, self.block).astype(np.float32)
        whole -= self.zeros[rows, :, None].astype(np.float32)
        return whole

    def dequantized(self, rows: slice | Array) -> Array:
        """Returns some rows as float32 [rows, depth]."""
        weights = self.centred(rows)
        weights *= self.scales[rows, :, None].astype(np.float32)
        return weights.reshape(len(weights), -1)[:, : self.depth]


def unpacked(packed: Array, bits: int, count: int) -> Array:
    """Returns the first `count` numbers of the last axis of uint8 `packed`, low bits first."""
    if bits == 8:
        return packed[..., :count]
    apart, mask = 8 // bits, np.uint8((1 << bits) - 1)
    numbers = np.empty((*packed.shape[:-1], apart * packed.shape[-1]), np.uint8)
    for place in range(apart):
        numbers[..., place::apart] = packed >> np.uint8(place * bits) & mask
    return numbers[..., :count]


def packed_bytes(count: int, bits: int) -> int:
    """Returns the bytes of `count` numbers of `bits` bits."""
    return -(-count * bits // 8)


def check_bits(bits: int) -> None:
    """Raises ModelError for a width that weights are not packed with."""
    if bits not in BITS:
        raise ModelError(f"{bits} bits", f"Weights have {', '.join(map(str, BITS))} bits.")


def check_block(size: int) -> None:
    """Raises ModelError for a size of blocks that is no power of two from 16."""
    if size < 16 or size & (size - 1):
        raise ModelError(
            f"the block size is {size}", "It is a power of two from 16: 16, 32, 64, 128, 256."
        )
