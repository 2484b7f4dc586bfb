"""The folder in which what was measured of this machine is kept, and files in it."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from tracer.errors import TracerError
from tracer.support.files import write_atomically


def folder() -> Path:
    """Where the system wants caches of this user's programs to be; it may not exist yet."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tracer"


def file(kind: str, key: object, within: Path | None = None) -> Path:
    """The file of this kind for all that a measurement depends on, told by its repr.

    It lies `within` a folder, that of the user's caches unless given.
    """
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
    return (within or folder()) / f"{kind}-{digest}.json"


def read(path: Path) -> bytes | None:
    """What a file holds; None where there is none that can be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def keep(path: Path, data: bytes) -> bool:
    """Whether `data` could be kept; a machine without a cache only measures again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except (OSError, TracerError):
        return False
    return True
