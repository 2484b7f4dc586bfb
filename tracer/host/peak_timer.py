"""Times work as the shortest of many tries, with the share of CPU time it received."""

import time
from collections.abc import Callable
from dataclasses import dataclass

_SECONDS = 0.4
_LEAST_TRIES = 3


@dataclass(slots=True)
class PeakTimer:
    """Times work of `threads` threads; `cpu_share` is the least share of CPU time received."""

    threads: int
    cpu_share: float = 1.0

    def best(self, run: Callable[[], object]) -> float:
        """Returns the shortest time of `run`, in seconds, over a fraction of a second."""
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
