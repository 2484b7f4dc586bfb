"""Stores peaks in the user's cache folder, one file per processor, thread count and versions."""

import contextlib
from importlib import metadata
from pathlib import Path

import msgspec

from tracer.records import environment
from tracer.records.environment import Peaks
from tracer.support import cache

_MEASURED_BY = ("numpy", "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
_METHOD = 2
"""Increase it when the measurement changes."""


def file(threads: int, folder: Path | None = None) -> Path:
    """Returns the file for the peaks of this machine at `threads` threads."""
    cpu, flags = environment.cpu_model(), environment.cpu_flags()
    key = (_METHOD, cpu, flags, threads, *map(_version, _MEASURED_BY))
    return cache.file("peaks", key, folder)


def load(path: Path) -> Peaks | None:
    """Returns the peaks stored in a file; None if it is missing or damaged."""
    data = cache.read(path)
    try:
        return None if data is None else msgspec.json.decode(data, type=Peaks)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def save(path: Path, peaks: Peaks) -> bool:
    """Stores the peaks; returns whether it succeeded."""
    return cache.store(path, msgspec.json.encode(peaks))


def forget(path: Path) -> None:
    """Removes stored peaks."""
    with contextlib.suppress(OSError):
        path.unlink()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
