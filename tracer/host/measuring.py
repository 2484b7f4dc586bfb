"""Peaks by measurement: the best of many tries, for whatever disturbs one makes it slower."""

from __future__ import annotations

from tracer.host import matmul, triad
from tracer.host.watch import Watch
from tracer.records import environment
from tracer.records.environment import Peak, Peaks

_INT8_INSTRUCTIONS = frozenset(
    {"avx2", "avx512bw", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}
)
"""Instruction sets that multiply 8-bit integers and add up the products."""


def measure(threads: int) -> Peaks:
    """Measure all peaks of this machine with `threads` threads at work."""
    watch = Watch(threads)
    float32 = max(
        (matmul.by_numpy(watch), matmul.by_onnxruntime("MatMul", watch)),
        key=lambda peak: peak.rate,
    )
    int8: Peak | None = None
    if _INT8_INSTRUCTIONS.intersection(environment.cpu_flags()):
        int8 = matmul.by_onnxruntime("MatMulInteger", watch)
    memory = triad.bandwidth(watch)
    return Peaks(threads, float32, memory, int8, watch.cpu_share)
