"""Where numba keeps what it compiled: by the sources of all kernels."""

from __future__ import annotations

import hashlib
import importlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba


@contextmanager
def by_all_sources(package: str) -> Iterator[None]:
    """Let numba keep code, for this time, in a folder named after the sources of all
    kernels of `package`.

    It compares the file of a function alone with what it kept, but compiled into a kernel is
    what other files have it call: code kept from before they changed would run on.
    """
    config: Any = numba.config
    asked = config.CACHE_DIR
    sources = Path(*importlib.import_module(package).__path__)
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
