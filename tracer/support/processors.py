"""Counts the processors that this process may use, and tells how they add products of bytes."""

import os
from collections.abc import Collection

_DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
"""Instruction sets that add products of bytes in 32 bits."""


def available() -> int:
    """Returns the number of processors that the system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def adds_bytes_exactly(flags: Collection[str]) -> bool:
    """Returns whether a processor with these instruction sets adds products of bytes in 32 bits."""
    return not _DOT_PRODUCTS.isdisjoint(flags)


def saturates(flags: Collection[str]) -> bool:
    """Returns whether unsigned by signed bytes are added in pairs of 16 bits, which saturate.

    onnxruntime's kernels for AVX2 and AVX-512 do so by VPMADDUBSW, unless the processor has VNNI.
    """
    return "avx2" in flags and not adds_bytes_exactly(flags)
