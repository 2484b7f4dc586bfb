"""The processors that this process may use, and threads that stay on theirs."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cores() -> int:
    """Returns the physical cores that this process may use, onnxruntime's default threads."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})


def places(threads: int) -> Sequence[int]:
    """Returns a processor for each thread, on as many cores as there are; () if too few are known.

    Left to the system, two threads often share a processor while another program has the other one.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ()
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, allowed)
    except OSError:  # a sandbox that does not let a thread choose
        return ()
    by_core: dict[str, list[int]] = {}
    for cpu in sorted(allowed):
        by_core.setdefault(_siblings(cpu), []).append(cpu)
    ranked = sorted((rank, cpu) for cpus in by_core.values() for rank, cpu in enumerate(cpus))
    return [cpu for _, cpu in ranked[:threads]] if len(ranked) >= threads else ()


@contextmanager
def staying_on(cpus: Sequence[int]) -> Iterator[None]:
    """Keeps the calling thread on some processors; on any of them if there are none."""
    before = os.sched_getaffinity(0) if cpus else ()
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
        yield
    finally:
        if cpus:
            os.sched_setaffinity(0, before)


def _siblings(cpu: int) -> str:
    """Returns the hardware threads of the core of `cpu`; `cpu` itself if unknown."""
    try:
        return Path(_SIBLINGS.format(cpu)).read_text(encoding="ascii").strip()
    except OSError:
        return str(cpu)
