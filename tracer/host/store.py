"""Peaks kept in the user's cache folder: a file for each processor, thread count and versions."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import msgspec

from tracer.records import environment
from tracer.records.environment import Peaks
from tracer.support import cache

_MEASURED_BY = ("numpy", "numba", "onnxruntime", "onnxruntime-gpu")
_METHOD = 1
"""Raised when what is measured changes."""


def file(threads: int, folder: Path | None = None) -> Path:
    """Where the peaks of this machine at so many threads are kept."""
    cpu, flags = environment.cpu_model(), environment.cpu_flags()
    key = (_METHOD, cpu, flags, threads, *map(_version, _MEASURED_BY))
    return cache.file("peaks", key, folder)


def load(path: Path) -> Peaks | None:
    """What is kept in a file; None where there is none, or it cannot be understood."""
    data = cache.read(path)
    try:
        return None if data is None else msgspec.json.decode(data, type=Peaks)
    except msgspec.MsgspecError:
        return None


def save(path: Path, peaks: Peaks) -> bool:
    """Whether they could be kept."""
    return cache.keep(path, msgspec.json.encode(peaks))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
