"""What this machine can do at most, measured once and kept: the roofs of a roofline."""

from __future__ import annotations

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
    """The peaks of this machine at `threads` threads; 0 is one for each physical core.

    They are measured if that was never done on this processor with these versions of numpy,
    numba and onnxruntime, or if `anew` asks for it, which takes some seconds; `announce` is told so
    before. What was measured is kept in `folder`, the user's cache folder unless given; what is
    measured while other programs run lowers nothing that was seen before.
    """
    count = threads or cores()
    file = store.file(count, folder)
    before = store.load(file)
    if before is not None and not anew:
        return before
    announce(f"measuring what this machine can do with {count} threads, about {_SECONDS} s")
    found = measuring.measure(count)
    if before is not None and found.is_busy:
        found = found.at_least(before)
    if store.save(file, found):
        announce(f"kept in {file}")
    else:
        announce(f"{file} cannot be written: the next command will measure again")
    return found


def known(threads: int = 0, folder: Path | None = None) -> Peaks | None:
    """Those that were measured before, or None."""
    return store.load(store.file(threads or cores(), folder))


def cores() -> int:
    """Physical cores that this process may use: the threads onnxruntime takes by default."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cpus = os.sched_getaffinity(0)
    return len({_siblings(cpu) for cpu in cpus})


def _siblings(cpu: int) -> str:
    """The hardware threads of the core of `cpu`, itself where that is not told."""
    try:
        return Path(_SIBLINGS.format(cpu)).read_text(encoding="ascii").strip()
    except OSError:
        return str(cpu)
