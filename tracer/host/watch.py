"""The shortest time of many tries, and the share of the processor that they had."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_SECONDS = 0.4
_LEAST_TRIES = 3


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
