"""Wall time of a call and of a loop of calls, in µs."""

import time
from collections.abc import Callable

SPINNING_S = 0.05
"""Time after which the threads of a pool sleep: they spin for 30 ms and more after a run, on the
cores that the next session needs."""


def elapsed_us(call: Callable[[], object], clock: Callable[[], int] | None = None) -> float:
    """Returns the wall time of one call, in µs, by a clock that counts ns."""
    clock = clock or time.perf_counter_ns
    start = clock()
    call()
    return (clock() - start) / 1e3


def times_us(call: Callable[[], object], count: int, warmup: int = 0) -> list[float]:
    """Returns the wall time of each of `count` calls, in µs, after `warmup` untimed calls."""
    for _ in range(warmup):
        call()
    return [elapsed_us(call) for _ in range(count)]
