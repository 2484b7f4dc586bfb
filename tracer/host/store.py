"""Peaks kept in the user's cache folder: a file for each processor, thread count and versions."""

from __future__ import annotations

import hashlib
import os
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from tracer import environment
from tracer.environment import Peaks
from tracer.errors import TracerError
from tracer.files import write_atomically

_MEASURED_BY = ("numpy", "numba", "onnxruntime", "onnxruntime-gpu")
_METHOD = 1
"""Raised when what is measured changes."""


def file(threads: int, folder: Path | None = None) -> Path:
    """Where the peaks of this machine at so many threads are kept."""
    cpu, flags = environment.cpu_model(), environment.cpu_flags()
    key = (_METHOD, cpu, flags, threads, *map(_version, _MEASURED_BY))
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
    return (folder or _cache()) / f"peaks-{digest}.json"


def load(path: Path) -> Peaks | None:
    """What is kept in a file; None where there is none, or it cannot be understood."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Peaks)
    except (OSError, msgspec.MsgspecError):
        return None


def save(path: Path, peaks: Peaks) -> bool:
    """Whether they could be kept."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(peaks))
    except (OSError, TracerError):
        return False
    return True


def _cache() -> Path:
    """Where the system wants caches of this user's programs to be."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tracer"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
