"""Measures peaks as the best of many tries, since disturbances only slow a try down."""

from tracer.host import matmul, memory
from tracer.records import environment
from tracer.records.environment import Peak, Peaks
from tracer.support.load import Moment

_INT8_INSTRUCTIONS = frozenset(
    {"avx2", "avx512bw", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}
)
"""Instruction sets that multiply 8-bit integers and add up the products."""


def measure(threads: int) -> Peaks:
    """Measures all peaks of this machine with `threads` threads."""
    begun = Moment.now()
    float32, *shares = matmul.peak("MatMul", threads)
    int8: Peak | None = None
    if _INT8_INSTRUCTIONS.intersection(environment.cpu_flags()):
        int8, share = matmul.peak("MatMulInteger", threads)
        shares.append(share)
    bandwidth, share = memory.bandwidth(threads)
    cpu_share = min(*shares, share)
    return Peaks(threads, float32, bandwidth, int8, cpu_share, begun.until_now())
