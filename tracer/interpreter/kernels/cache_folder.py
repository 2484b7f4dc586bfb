"""Sets numba's cache folder by the sources of all kernels."""

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
    """Sets numba's cache, within this context, to a folder named by a hash of `package`.

    numba compares only the file of the compiled function with its cache, but a kernel includes
    code of other files: it would run stale code after a change there.
    """
    config: Any = numba.config
    configured = config.CACHE_DIR
    sources = Path(*importlib.import_module(package).__path__)
    folder = Path(configured or sources / "__pycache__") / f"kernels-{_digest(sources)}"
    if not configured:
        for old in set(folder.parent.glob("kernels-*")) - {folder}:
            shutil.rmtree(old, ignore_errors=True)
    config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = configured


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
