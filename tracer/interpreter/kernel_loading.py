"""The compiled kernels: loaded, and once compiled, when the first large operator needs them."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType

Announce = Callable[[int, int, str], None]
_KERNELS = "tracer.interpreter.kernels"
_LOADING = threading.RLock()
"""Where numba keeps code is a setting of the whole process."""

_ANNOUNCE: ContextVar[Announce | None] = ContextVar("announce", default=None)


@contextmanager
def announced(announce: Announce | None) -> Iterator[None]:
    """Let `announce` be told of the kernels being loaded or compiled, during this time."""
    token = _ANNOUNCE.set(announce)
    try:
        yield
    finally:
        _ANNOUNCE.reset(token)


@cache
def loaded(name: str, package: str = _KERNELS) -> ModuleType:
    """Compiled kernels: the first import of all compiles them, and numba keeps them on disk."""
    announce = _ANNOUNCE.get()
    what = f"loading the compiled kernels '{name}' (the first time they are compiled)"
    if announce is not None:
        announce(0, 1, what)
    kept = importlib.import_module(f"{_KERNELS}.cache_folder")  # numba is heavy
    with _LOADING, kept.by_all_sources(package):
        kernels = importlib.import_module(f"{package}.{name}")
    if announce is not None:
        announce(1, 1, what)
    return kernels
