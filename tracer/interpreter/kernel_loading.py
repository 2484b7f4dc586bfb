"""Loads the compiled kernels at their first use; the first import ever compiles them."""

import importlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType

from tracer.support.progress import Progress

_KERNELS = "tracer.interpreter.kernels"
_LOADING = threading.RLock()
"""numba's cache folder is a setting of the whole process."""

_PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)

_LOADING_NS = [0]
"""Time that all loading in this process has taken."""


def clock_ns() -> int:
    """Returns the time on a clock that stands still while kernels are loaded or compiled.

    Loading takes half a second, many times as long as an inference of a small network.
    """
    return time.perf_counter_ns() - _LOADING_NS[0]


@contextmanager
def announced(progress: Progress | None) -> Iterator[None]:
    """Calls `progress` while kernels are loaded or compiled within this context."""
    token = _PROGRESS.set(progress)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


@cache
def loaded(name: str, package: str = _KERNELS) -> ModuleType:
    """Returns a module of compiled kernels; numba caches the compiled code on disk."""
    start = time.perf_counter_ns()
    progress = _PROGRESS.get()
    message = f"loading the compiled kernels '{name}' (the first time they are compiled)"
    if progress is not None:
        progress(0, 1, message)
    cache_folder = importlib.import_module(f"{_KERNELS}.cache_folder")  # numba is heavy
    with _LOADING, cache_folder.by_all_sources(package):
        kernels = importlib.import_module(f"{package}.{name}")
    if progress is not None:
        progress(1, 1, message)
    _LOADING_NS[0] += time.perf_counter_ns() - start
    return kernels
