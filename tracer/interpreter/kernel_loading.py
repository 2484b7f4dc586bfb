"""Loads the compiled kernels at their first use, and tells when some are compiled."""

import importlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType

from tracer.support.progress import Progress, silent
from tracer.support.quiet import without_signals

_KERNELS = "tracer.interpreter.kernels"
_LOADING = threading.RLock()
"""Compilers have one state for the whole process."""

_PROGRESS: ContextVar[Progress] = ContextVar("progress", default=silent)

_LOADING_NS = [0]
"""Time that all loading in this process has taken."""
_COMPILED = [0]
"""Kernels that this process has compiled."""
_NOTES: dict[str, None] = {}
_NOT_KEPT = (
    "compiled code cannot be kept, so every command compiles anew: set NUMBA_CACHE_DIR to a folder "
    "that can be written"
)


def clock_ns() -> int:
    """Returns the time on a clock that stands still while kernels are loaded or compiled.

    Loading takes half a second, many times as long as an inference of a small network.
    """
    return time.perf_counter_ns() - _LOADING_NS[0]


def notes() -> tuple[str, ...]:
    """Returns what a user should know of the code that this process has compiled."""
    return tuple(_NOTES)


@contextmanager
def announced(progress: Progress | None) -> Iterator[None]:
    """Calls `progress` while kernels are compiled within this context."""
    token = _PROGRESS.set(progress or silent)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


@contextmanager
def loading() -> Iterator[None]:
    """Lets one thread at a time load or compile code, while `clock_ns` stands still.

    Signals wait: an interrupted compiler is left without its result.
    """
    with _LOADING, without_signals():
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            _LOADING_NS[0] += time.perf_counter_ns() - start


@contextmanager
def compiling(is_kept: bool) -> Iterator[None]:
    """Tells the progress, and the notes, that a kernel is compiled within this context."""
    message = f"compiling kernels for this processor{', once' if is_kept else ''}"
    progress, done = _PROGRESS.get(), _COMPILED[0]
    progress(done, done + 1, message)
    yield
    _COMPILED[0] = done + 1
    progress(done + 1, done + 1, message)
    if not is_kept:
        _NOTES[_NOT_KEPT] = None


@cache
def loaded(name: str, package: str = _KERNELS) -> ModuleType:
    """Returns a module of kernels, which numba compiles unless the compiled code was kept."""
    with loading():
        cache_folder = importlib.import_module(f"{_KERNELS}.cache_folder")  # numba is heavy
        with cache_folder.for_numba(package):
            return importlib.import_module(f"{package}.{name}")
