"""Times work as the shortest of many tries, with the share of CPU time that the best received.

A try is to be shorter than the time that the system gives a program at a stretch (some ms): then
some tries have their processors for themselves, however busy the machine is.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

ALONE = 0.95
"""Work that got this share of its processors was not disturbed."""

_MOST_S = 0.6
_SETTLED_S = 0.15
"""Time without a better try after which the best one stands, if others confirm it."""
_GAIN = 1.005
_NEAR = 0.95
"""Tries this near to the best confirm it, and count for the share: clocks may be coarse."""
_CONFIRMING = 4
_THREADS = Path("/proc/self/task")


def best(run: Callable[[], object], threads: int) -> tuple[float, float]:
    """Returns the shortest time of `run`, in seconds, and the share of CPU time that it got."""
    run()
    clocks = _clocks()
    tries: list[tuple[float, float]] = []
    shortest, begun = float("inf"), time.perf_counter()
    improved = now = begun
    while not tries or now - begun < _MOST_S:
        before, start = _cpu_seconds(clocks), time.perf_counter()
        run()
        now = time.perf_counter()
        tries.append((now - start, _cpu(before, _cpu_seconds(clocks), now - start)))
        if shortest > _GAIN * (now - start):
            shortest, improved = now - start, now
        if now - improved > _SETTLED_S:
            near = _near(tries)
            if len(near) >= _CONFIRMING and _share(near, threads) >= ALONE:
                break
    return min(tries)[0], _share(_near(tries), threads)


def _near(tries: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    shortest = min(tries)[0]
    return [(wall, cpu) for wall, cpu in tries if shortest >= _NEAR * wall]


def _share(tries: Sequence[tuple[float, float]], threads: int) -> float:
    return sum(cpu for _, cpu in tries) / (threads * sum(wall for wall, _ in tries))


def _clocks() -> list[int]:
    """Returns a clock of the CPU time of each thread that there is now; none but on Linux.

    The clock of the process has the time of other threads as of the last tick, up to 10 ms ago. The
    numbers are those of pthread_getcpuclockid(3), which Python has for its own threads alone.
    """
    threads = _THREADS.iterdir() if _THREADS.is_dir() else ()
    return [~int(thread.name) << 3 | 6 for thread in threads]


def _cpu_seconds(clocks: Sequence[int]) -> list[float]:
    return list(map(_thread_seconds, clocks)) if clocks else [time.process_time()]


def _thread_seconds(clock: int) -> float:
    try:
        return time.clock_gettime(clock)
    except OSError:  # the thread has ended
        return 0.0


def _cpu(before: Sequence[float], after: Sequence[float], wall: float) -> float:
    """Returns the CPU time of a try; what a clock of one thread is late with is no part of it."""
    spent = [end - start for start, end in zip(before, after, strict=True)]
    return sum(spent) if len(spent) == 1 else sum(max(0.0, min(each, wall)) for each in spent)
