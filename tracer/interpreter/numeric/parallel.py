"""Runs blocks of work on threads; the blocks depend only on the shapes.

numpy works in threads of Python, whose interpreter lock it releases inside a block. One thread
computes a block with a single-threaded BLAS, so results do not depend on the number of threads.

Compiled tasks are shared among threads that spin for a while before they sleep: waking a thread
takes as long as many nodes take, and threads between blocks would wait for the interpreter lock.
Compiled code in `kernels.task_team` distributes the blocks; this module wakes helpers that sleep.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import islice
from threading import Lock, Thread
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from tracer.interpreter.compiled_code import NO_MEMORY, Code, Task, announced, announcing, loaded
from tracer.support.types import Array

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
    indices, progress = iter(range(count)), announcing()

    def drain() -> None:
        with np.errstate(all="ignore"), announced(progress):  # it may compile
            for index in indices:
                work(index)

    futures = [_pool(helpers).submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:  # a helper that has not begun is cancelled, not waited for
        failures = [future.exception() for future in futures if not future.cancel()]
    for failure in filter(None, failures):
        raise failure


def pieces(total: int, size: int) -> list[slice]:
    """Returns slices of `size` items that cover `total`; the last may be shorter."""
    return [slice(low, min(low + size, total)) for low in range(0, total, size)]


def allowed() -> int:
    """Returns how many threads this run may use, including its own."""
    return _THREADS.get()


class _Blas:
    """The number of runs that need a single-threaded BLAS, and its setting before."""

    lock = Lock()
    users = 0
    threads = 1
    restore: Any = None


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Lets blocks run on `count` threads (None: the thread count of BLAS).

    Meanwhile BLAS has one thread in the whole process; the last run to end restores it.
    """
    with _Blas.lock:
        if _Blas.users == 0:
            _Blas.threads = max((lib.num_threads for lib in _blas().lib_controllers), default=1)
            _Blas.restore = _blas().limit(limits=1)
        _Blas.users += 1
    token = _THREADS.set(_Blas.threads if count is None else count)
    try:
        yield
    finally:
        _THREADS.reset(token)
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


def share(task: Task, count: int, arrays: Sequence[Array], numbers: Sequence[int] = ()) -> None:
    """Computes blocks 0 to `count` - 1 of a task, in any order and on several threads.

    Blocks must be independent. Raises UnfitError for arrays that compiled code would misread.
    """
    arguments = task.words(count, arrays, numbers)
    address = arguments.__array_interface__["data"][0]
    helpers = allowed() - 1
    team = _team(helpers) if helpers > 0 and count > 1 else None
    if team is None or not team.run(task.code, address, count):
        kernels = loaded("task_team")
        words = (ctypes.c_int64 * kernels.words(0))(task.code.address, address, count)
        kernels.drain.code(ctypes.addressof(words))  # leaves the lock once
        _check(words[kernels.FAILED])


def _check(has_failed: int) -> None:
    if has_failed:
        raise MemoryError(NO_MEMORY)


class _Team:
    """Helper threads for one leader at a time; a second leader is refused."""

    def __init__(self, helpers: int) -> None:
        kernels = self._kernels = loaded("task_team")
        self._begin, self._drain, self._close, self._wake, self._serve_tasks = (
            each.code for each in
            (kernels.begin, kernels.drain, kernels.close, kernels.wake, kernels.serve)
        )  # fmt: skip
        array = np.zeros(kernels.words(helpers), np.int64)
        self._words, self._address = array.data, array.__array_interface__["data"][0]
        self._led = Lock()
        self._bells = {kernels.words(number): Lock() for number in range(helpers)}
        for parked, bell in self._bells.items():
            bell.acquire()
            Thread(target=self._serve, args=(parked, bell), name="tracer", daemon=True).start()

    def run(self, task: Code, arguments: int, count: int) -> bool:
        """Runs a task to its end; returns False if another task is running.

        Raises MemoryError if one of its blocks finds no memory.
        """
        words, address, kernels = self._words, self._address, self._kernels
        if not self._led.acquire(blocking=False):
            return False
        try:
            words[kernels.TASK], words[kernels.ARGUMENTS] = task.address, arguments
            words[kernels.COUNT] = count
            self._begin(address)
            for parked, bell in islice(self._bells.items(), count - 1):
                self._wake(address, parked)
                if words[parked + 1]:
                    bell.release()
            self._drain(address)
        finally:  # even if interrupted: helpers still read the arguments
            self._close(address)
            has_failed = words[kernels.FAILED]
            self._led.release()
        _check(has_failed)
        return True

    def _serve(self, parked: int, bell: Lock) -> None:
        while True:
            self._serve_tasks(self._address, parked)
            bell.acquire()


_team = cache(_Team)
