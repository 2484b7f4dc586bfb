"""The processors that this process may use, threads that stay on theirs, and how they add bytes."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"

_DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
"""Instruction sets that add products of bytes in 32 bits."""


def available() -> int:
    """Returns the number of processors that the system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


def adds_bytes_exactly(flags: Collection[str]) -> bool:
    """Returns whether a processor with these instruction sets adds products of bytes in 32 bits."""
    return not _DOT_PRODUCTS.isdisjoint(flags)


def saturates(flags: Collection[str]) -> bool:
    """Returns whether unsigned by signed bytes are added in pairs of 16 bits, which saturate.

    onnxruntime's kernels for AVX2 and AVX-512 do so by VPMADDUBSW, unless the processor has VNNI.
    """
    return "avx2" in flags and not adds_bytes_exactly(flags)
