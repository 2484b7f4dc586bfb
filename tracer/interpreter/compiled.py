"""The compiled kernels: loaded, and once compiled, when the first large operator needs them."""

from __future__ import annotations

import hashlib
import importlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

Announce = Callable[[int, int, str], None]
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
def loaded(name: str) -> ModuleType:
    """Compiled kernels: the first import of all compiles them, and numba keeps them on disk."""
    announce = _ANNOUNCE.get()
    what = f"loading the compiled kernels '{name}' (the first time they are compiled)"
    if announce is not None:
        announce(0, 1, what)
    with _kept_by_all_sources():
        kernels = importlib.import_module(f"tracer.interpreter.kernels.{name}")
    if announce is not None:
        announce(1, 1, what)
    return kernels


@contextmanager
def _kept_by_all_sources() -> Iterator[None]:
    """Let numba keep code in a folder that is named after the sources of all kernels.

    It compares the file of a function alone with what it kept, but compiled into a kernel is
    what other files have it call: code kept from before they changed would run on.
    """
    import numba

    config: Any = numba.config
    asked = config.CACHE_DIR
    sources = Path(__file__).with_name("kernels")
    folder = Path(asked or sources / "__pycache__") / f"kernels-{_digest(sources)}"
    if not asked:
        for old in set(folder.parent.glob("kernels-*")) - {folder}:
            shutil.rmtree(old, ignore_errors=True)
    config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = asked


def _digest(sources: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]
