"""Reuses the memory of results that nothing refers to any more, within a run and across runs.

A new array of megabytes costs a page fault per 4 KiB; a reused one is still in the cache.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from tracer import limits
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
