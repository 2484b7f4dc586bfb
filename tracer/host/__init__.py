"""The peak rates of this machine, the roofs of a roofline: measured once, and stored.

There is a file for each processor, thread count and versions in the user's cache folder.
"""

import contextlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import msgspec

from tracer.host import measuring
from tracer.host.measuring import cores as cores
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import parallel
from tracer.records import environment
from tracer.records.environment import CompiledCode, Peaks
from tracer.support.files import cached_file, read_cached, store_in_cache

_SECONDS = 3
"""About how long measuring takes."""
_MEASURED_BY = ("numpy", "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
_METHOD = 2
"""Increase it when the measurement changes."""


def peaks(
    threads: int = 0,
    *,
    anew: bool = False,
    folder: Path | None = None,
    announce: Callable[[str], None] = lambda text: None,
) -> Peaks:
    """Returns the peaks of this machine at `threads` threads; 0 is one per physical core.

    Measures them, which takes some seconds, if none are stored for this processor and these
    versions of numpy, numba and onnxruntime, or if `anew`. `announce` is called with a message
    before and after measuring. `folder` defaults to the user's cache folder. Values measured while
    other programs run never lower stored ones.
    """
    count = threads or cores()
    file = peaks_file(count, folder)
    stored = read_peaks(file)
    if stored is not None and not anew:
        return stored
    workers = "1 thread" if count == 1 else f"{count} threads"
    announce(f"measuring what this machine can do with {workers}, about {_SECONDS} s")
    measured = measuring.measure(count)
    if stored is not None and measured.is_busy:
        measured = measured.at_least(stored)
    if write_peaks(file, measured):
        announce(f"stored in {file}")
    else:
        announce(f"{file} cannot be written: the next command will measure again")
    return measured


def stored_peaks(threads: int = 0, folder: Path | None = None) -> Peaks | None:
    """Returns the stored peaks, or None."""
    return read_peaks(peaks_file(threads or cores(), folder))


def correct(stored: Peaks, right: Peaks | None, folder: Path | None = None) -> None:
    """Stores the `right` peaks in place of `stored`; of None, the next command measures again.

    Peaks that are not those that are stored here change nothing.
    """
    file = peaks_file(stored.threads, folder)
    if read_peaks(file) != stored:
        return
    if right is None:
        with contextlib.suppress(OSError):
            file.unlink()
    else:
        write_peaks(file, right)


def peaks_file(threads: int, folder: Path | None = None) -> Path:
    """Returns the file for the peaks of this machine at `threads` threads."""
    cpu, flags = environment.cpu_model(), environment.cpu_flags()
    key = (_METHOD, cpu, flags, threads, *map(_version, _MEASURED_BY))
    return cached_file("peaks", key, folder)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def read_peaks(path: Path) -> Peaks | None:
    """Returns the peaks stored in a file; None if it is missing or damaged."""
    data = read_cached(path)
    try:
        return None if data is None else msgspec.json.decode(data, type=Peaks)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def write_peaks(path: Path, peaks: Peaks) -> bool:
    """Stores the peaks; returns whether it succeeded."""
    return store_in_cache(path, msgspec.json.encode(peaks))


def compiled_code() -> CompiledCode:
    """Returns what the code that tracer compiles for its sums uses here.

    That is the instructions, the threads of a run by default, and the folder.
    """
    folder = loaded("machine_code").place()
    with parallel.threads(None):
        threads = parallel.allowed()
    return CompiledCode(
        loaded("machine_code").instruction_set(), threads, None if folder is None else str(folder)
    )
