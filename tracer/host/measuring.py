"""Measures peaks as the best of many tries, since disturbances only slow a try down."""

from tracer.host import matmul, triad
from tracer.host.peak_timer import PeakTimer
from tracer.records import environment
from tracer.records.environment import Peak, Peaks

_INT8_INSTRUCTIONS = frozenset(
    {"avx2", "avx512bw", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}
)
"""Instruction sets that multiply 8-bit integers and add up the products."""


def measure(threads: int) -> Peaks:
    """Measures all peaks of this machine with `threads` threads."""
    timer = PeakTimer(threads)
    float32 = max(
        (matmul.by_numpy(timer), matmul.by_onnxruntime("MatMul", timer)),
        key=lambda peak: peak.rate,
    )
    int8: Peak | None = None
    if _INT8_INSTRUCTIONS.intersection(environment.cpu_flags()):
        int8 = matmul.by_onnxruntime("MatMulInteger", timer)
    memory = triad.bandwidth(timer)
    return Peaks(threads, float32, memory, int8, timer.cpu_share)
