"""The peak rates of this machine, measured once and stored: the roofs of a roofline."""

import os
from collections.abc import Callable
from pathlib import Path

from tracer.host import measuring, store
from tracer.records.environment import Peaks

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_SECONDS = 3
"""About how long measuring takes."""


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
    file = store.file(count, folder)
    stored = store.load(file)
    if stored is not None and not anew:
        return stored
    announce(f"measuring what this machine can do with {count} threads, about {_SECONDS} s")
    measured = measuring.measure(count)
    if stored is not None and measured.is_busy:
        measured = measured.at_least(stored)
    if store.save(file, measured):
        announce(f"stored in {file}")
    else:
        announce(f"{file} cannot be written: the next command will measure again")
    return measured


def known(threads: int = 0, folder: Path | None = None) -> Peaks | None:
    """Returns the stored peaks, or None."""
    return store.load(store.file(threads or cores(), folder))


def cores() -> int:
    """Returns the physical cores that this process may use, onnxruntime's default threads."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cpus = os.sched_getaffinity(0)
    return len({_siblings(cpu) for cpu in cpus})


def _siblings(cpu: int) -> str:
    """Returns the hardware threads of the core of `cpu`; `cpu` itself if unknown."""
    try:
        return Path(_SIBLINGS.format(cpu)).read_text(encoding="ascii").strip()
    except OSError:
        return str(cpu)
