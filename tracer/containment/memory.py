"""What this process may use: a share of the memory that is free, open files, processors."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tracer.errors import LimitError

try:
    import resource
except ModuleNotFoundError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

_FILES = 1024
"""Files that a process may usually have open."""
_MOST = 2**63 - 1
"""The system takes no larger number."""
SHARE = 0.75
"""Default limit ÷ free memory: the system and other programs keep the rest."""

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_STATM = Path("/proc/self/statm")
_DATA = 5
"""Field of `_STATM` with the pages that RLIMIT_DATA counts, and those of the stack."""
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat",
     "total_inactive_file"),
)  # fmt: skip
"""Files of control groups, version 2 and 1: limit, use, and the field of cache that can go."""


def free_bytes() -> int | None:
    """Returns the bytes that this process could allocate; None where the system does not say.

    That is the memory that Linux calls available, or what the control group leaves, if less.
    """
    available = _field(_MEMINFO, "MemAvailable:")
    known = [] if available is None else [available * 1024]
    for limit, used, stat, reclaimable in _LIMITS:
        most, now = _number(_CGROUP / limit), _number(_CGROUP / used)
        if most is not None and now is not None:
            known.append(max(0, most - now) + (_field(_CGROUP / stat, reclaimable) or 0))
    return min(known, default=None)


def room_bytes() -> int | None:
    """Returns the bytes that this process may still allocate; None where there is no limit."""
    most = limited_to()
    if most is None:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        return max(0, most - int(_STATM.read_text().split()[_DATA]) * resource.getpagesize())
    return most


def limit(nbytes: int) -> None:
    """Makes allocations of more than `nbytes` in total fail in this process.

    RLIMIT_DATA counts private writable memory. RLIMIT_AS would count address space that threads
    and CUDA reserve and never use.
    """
    if resource is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        soft = max(0, min(nbytes, _MOST if hard == resource.RLIM_INFINITY else hard))
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def limited_to() -> int | None:
    """Returns the limit in bytes; None where there is none."""
    if resource is None:
        return None
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def out_of_memory(what: str) -> LimitError:
    """Returns the error for an allocation that failed at `what`, with the limits in force."""
    limits = []
    for name, option in (("DATA", "--max-memory"), ("AS", "ulimit -v")) if resource else ():
        soft, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        if soft != resource.RLIM_INFINITY:
            option = "ulimit -d" if name == "DATA" and soft == hard else option
            limits.append(f"{option} (now {soft >> 20:,} MiB)")
    return LimitError(what, ", or raise ".join(("Try a smaller batch", *limits)) + ".")


def open_files() -> int:
    """Returns how many files this process may have open, after raising the limit if it may."""
    if resource is None:
        return _MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FILES:  # RLIM_INFINITY is -1
        soft = _FILES if hard < 0 else min(hard, _FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return int(soft) if soft >= 0 else _MOST


_default: int | None = None
"""The limit that `limit_to_share` set in this process."""


def limit_to_share() -> None:
    """Sets the default limit, where the system says what is free, and no core dumps."""
    global _default  # one process has one limit
    free = free_bytes()
    if free is not None and limited_to() is None:
        limit(int(free * SHARE))
        _default = limited_to()
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def is_default() -> bool:
    """Returns whether the limit of this process is the default, which nobody asked for."""
    return _default is not None and limited_to() == _default


@contextlib.contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """Lets the block allocate `nbytes`, where the default limit is in force and leaves more."""
    room, before = room_bytes(), limited_to()
    if not is_default() or room is None or before is None or room <= nbytes:
        yield
        return
    limit(before - room + nbytes)
    try:
        yield
    finally:
        limit(before)


def _field(file: Path, name: str) -> int | None:
    """Returns the number after `name` in a file of lines `name number …`."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in file.read_text().splitlines():
            words = line.split()
            if words and words[0] == name:
                return int(words[1])
    return None


def _number(file: Path) -> int | None:
    """Returns the number in a file; None for `max`, and where there is no such file."""
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return None


def processor_count() -> int:
    """Returns the number of processors that the system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
