"""Stores measurements of this machine in the user's cache folder."""

import hashlib
import os
import sys
from pathlib import Path

from tracer.errors import InputError, TracerError
from tracer.support.files import read_regular, told_of, write_atomically
from tracer.support.temporary import sweep


def folder() -> Path:
    """Returns the user's cache folder for this program; it may not exist yet."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or _home() / "AppData/Local"
    elif sys.platform == "darwin":
        base = _home() / "Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or _home() / ".cache"
    return Path(base) / "tracer"


def _home() -> Path:
    """Returns the home of the user, or a place that takes no files if there is none."""
    try:
        return Path.home()
    except RuntimeError:  # a user that the system does not know, as in containers
        return Path(os.devnull)


def file(kind: str, key: object, within: Path | None = None) -> Path:
    """Returns the file of this kind for `key`, on whose repr the measurement depends.

    `within` is the folder (default: the user's cache folder).
    """
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
    return (within or folder()) / f"{kind}-{digest}.json"


def read(path: Path) -> bytes | None:
    """Returns the content of a file; None if it cannot be read, or is a pipe or a device."""
    try:
        return read_regular(path)
    except InputError:
        return None


def store(path: Path, data: bytes) -> bool:
    """Writes `data`; returns whether it succeeded. Without a cache one only measures again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        write_atomically(path, data)
        told_of(path)
    except (OSError, TracerError):
        return False
    return True
