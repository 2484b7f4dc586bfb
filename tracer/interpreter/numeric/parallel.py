"""Runs blocks of work on threads; the blocks depend only on the shapes.

One thread computes a block with a single-threaded BLAS, so results do not depend on the number of
threads. numpy releases the interpreter lock inside a block.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

_THREADS: ContextVar[int] = ContextVar("threads", default=1)

BLOCK = 1 << 16
"""Elements of an element-wise block: inputs and output stay in the second-level cache."""
BYTES_BLOCK = 1 << 19
"""Elements of a block of conversions and look-ups of bytes: 200 us, long compared with waking a
thread."""


def run_blocks(count: int, work: Callable[[int], None]) -> None:
    """Calls `work(0)` ... `work(count - 1)`, in any order and from several threads.

    Raises the first exception of a block, once the running blocks have ended.
    """
    helpers = min(_THREADS.get(), count) - 1
    if helpers < 1:
        for index in range(count):
            work(index)
        return
    indices = iter(range(count))

    def drain() -> None:
        with np.errstate(all="ignore"):
            for index in indices:
                work(index)

    futures = [_pool(helpers).submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:  # a helper that has not begun is cancelled, not waited for
        failures = [future.exception() for future in futures if not future.cancel()]
    for failure in filter(None, failures):
        raise failure


def allowed() -> int:
    """Returns how many threads this run may use, including its own."""
    return _THREADS.get()


def pieces(total: int, size: int) -> list[slice]:
    """Returns slices of `size` items that cover `total`; the last may be shorter."""
    return [slice(low, min(low + size, total)) for low in range(0, total, size)]


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Lets blocks run on `count` threads (None: the thread count of BLAS)."""
    with _single_threaded_blas():
        token = _THREADS.set(_Blas.threads if count is None else count)
        try:
            yield
        finally:
            _THREADS.reset(token)


class _Blas:
    """The number of runs that need a single-threaded BLAS, and its setting before."""

    lock = Lock()
    users = 0
    threads = 1
    restore: Any = None


@contextmanager
def _single_threaded_blas() -> Iterator[None]:
    """Limits BLAS to one thread in the whole process; the last run to end restores it."""
    with _Blas.lock:
        if _Blas.users == 0:
            _Blas.threads = max((lib.num_threads for lib in _blas().lib_controllers), default=1)
            _Blas.restore = _blas().limit(limits=1)
        _Blas.users += 1
    try:
        yield
    finally:
        with _Blas.lock:
            _Blas.users -= 1
            if _Blas.users == 0:
                _Blas.restore.restore_original_limits()


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="tracer")
