"""Memory for results, used again once nothing refers to it, within a run and by the next one.

A fresh array of megabytes costs a page fault for every 4 KiB; one that another value has just
left is in the cache already.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from tracer.support.types import Array

_SMALLEST = 1 << 16
"""Bytes below which the allocator is fast by itself."""
_MOST = 24
"""Buffers that are kept."""
_SLACK = 1.5
"""A buffer serves what needs it to two thirds at least."""


class Pool:
    """Buffers of one run at a time, the last used first."""

    def __init__(self) -> None:
        self._buffers: list[Array] = []

    def take(self, nbytes: int) -> Array:
        """A buffer of at least `nbytes` that no array refers to any more, or a new one."""
        for place in range(len(self._buffers) - 1, -1, -1):
            held = self._buffers[place].nbytes
            # Two references are our list's and the call's; every view on a buffer is one more.
            if nbytes <= held <= _SLACK * nbytes and sys.getrefcount(self._buffers[place]) == 2:
                self._buffers.append(self._buffers.pop(place))
                return self._buffers[-1]
        self._buffers.append(np.empty(nbytes, np.uint8))
        if len(self._buffers) > _MOST:
            self._buffers.pop(0)
        return self._buffers[-1]


_POOL: ContextVar[Pool | None] = ContextVar("pool", default=None)


@contextmanager
def pooled(idle: list[Pool]) -> Iterator[None]:
    """Let `empty` use buffers again during a run: those of an idle pool, if there is one.

    The pool is put back afterwards; what the run returned stays the caller's, as long as he
    refers to it.
    """
    try:
        pool = idle.pop()
    except IndexError:  # the first run, or one beside others
        pool = Pool()
    token = _POOL.set(pool)
    try:
        yield
    finally:
        _POOL.reset(token)
        idle.append(pool)


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """As `np.empty`, for a result that is about to be written as a whole."""
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    pool = _POOL.get()
    if pool is None or nbytes < _SMALLEST or kind.hasobject:
        return np.empty(tuple(shape), kind)
    return pool.take(nbytes)[:nbytes].view(kind).reshape(shape)
