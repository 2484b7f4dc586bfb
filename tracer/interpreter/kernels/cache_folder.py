"""Chooses the folder that keeps compiled code, by the sources of kernels and the processor."""

import hashlib
import importlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import event
from numba.core.registry import cpu_target

from tracer.interpreter.compiled_code import compiling
from tracer.support import cache as user_cache
from tracer.support.temporary import FileInUse, TemporaryFolder, unmarked

_TRACER = Path(__file__).parents[2]
_config: Any = numba.config
_CONFIGURED: str = _config.CACHE_DIR
"""NUMBA_CACHE_DIR as the user set it; empty if not."""


def target() -> tuple[str, str, str]:
    """Returns the triple, processor and features that code is compiled for."""
    codegen: Any = cpu_target.target_context.codegen()
    triple, processor, features = codegen.magic_tuple()
    return triple, processor, features


@cache
def place() -> Path | None:
    """Returns the folder that keeps compiled code; None if none can be written.

    It is NUMBA_CACHE_DIR, else beside the sources, else in the user's cache folder.
    """
    beside = _TRACER / "__pycache__" / "compiled"
    elsewhere = user_cache.folder() / f"compiled-{_digest(str(_TRACER).encode())}"
    candidates = (Path(_CONFIGURED),) if _CONFIGURED else (beside, elsewhere)
    return next((folder for folder in candidates if _can_write(folder)), None)


@cache
def kept_in(package: str) -> Path | None:
    """Returns the folder that keeps the compiled code of `package`; None if none can be written.

    Its name holds the sources: numba compares only the file of the compiled function with its
    cache, but a kernel includes code of other files. Code of earlier sources is deleted. A folder
    within is for one processor and one version of the compilers.
    """
    within = place()
    if within is None:
        return None
    sources = sorted(Path(*importlib.import_module(package).__path__).glob("*.py"))
    folder = within / f"{package}-{_digest(*(path.read_bytes() for path in sources))}"
    if not _CONFIGURED:
        for old in set(within.glob(f"{package}-*")) - {folder}:
            shutil.rmtree(old, ignore_errors=True)
    versions = (*target(), numba.__version__, llvmlite.__version__)
    return folder / f"{target()[1]}-{_digest(*(text.encode() for text in versions))}"


@contextmanager
def for_numba(package: str) -> Iterator[None]:
    """Lets numba, within this context, keep compiled code in the folder of `package`.

    numba compiles nothing without a folder, so a temporary one stands in for a missing one.
    """
    folder = kept_in(package)
    telling = event.install_listener("numba:compile", _Telling(folder is not None))
    with telling, TemporaryFolder() if folder is None else _in_use(folder) as path:
        _config.CACHE_DIR = str(path)
        try:
            yield
        finally:
            _config.CACHE_DIR = _CONFIGURED


@contextmanager
def _in_use(folder: Path) -> Iterator[Path]:
    """Marks the folder; if no process has, first removes what numba left half written."""
    with suppress(OSError), unmarked(folder):
        for path in folder.rglob("*.tmp.*"):
            path.unlink()
    mark = FileInUse.creating(folder, lambda: folder.mkdir(parents=True, exist_ok=True))
    try:
        yield folder
    finally:
        mark.release()


class _Telling(event.Listener):
    """Tells what numba compiles; it compiles a kernel within another that calls it."""

    def __init__(self, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._contexts: list[AbstractContextManager[None]] = []

    def on_start(self, _: Any) -> None:
        self._contexts.append(compiling(self._is_kept))
        self._contexts[-1].__enter__()

    def on_end(self, _: Any) -> None:
        self._contexts.pop().__exit__(None, None, None)


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]
