"""Peaks by measurement: the best of many tries, for whatever disturbs one makes it slower."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tracer import environment
from tracer.environment import Peak, Peaks
from tracer.host import matmul, triad

_SECONDS = 0.4
_LEAST_TRIES = 3
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


@dataclass(slots=True)
class Watch:
    """Times work of `threads` threads; `cpu_share` is the least of the CPU time they got for it."""

    threads: int
    cpu_share: float = 1.0

    def best(self, run: Callable[[], object]) -> float:
        """The shortest of the times `run` takes within a fraction of a second, in seconds."""
        run()
        tries: list[tuple[float, float]] = []
        begun = time.perf_counter()
        while len(tries) < _LEAST_TRIES or time.perf_counter() - begun < _SECONDS:
            cpu, start = time.process_time(), time.perf_counter()
            run()
            tries.append((time.perf_counter() - start, time.process_time() - cpu))
        seconds, cpu = min(tries)
        self.cpu_share = min(self.cpu_share, cpu / (seconds * self.threads))
        return seconds
