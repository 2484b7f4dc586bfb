"""Runs in turn: some that nothing disturbs, some that are recorded, until there are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracer.executors.eager.settings import EagerSettings
from tracer.support.progress import Progress

_LEAST_RUNS = 10
_DEFAULT_SECONDS = 1.0
_PLAIN_SHARE = 10
"""One undisturbed run for so many recorded ones, once there are many."""
_PLAIN_MOST, _PLAIN_LEAST = 20, 5
"""So many before and after the first recorded ones, at least."""

_BLOCK_US = 2e6
_FIRST_BLOCK = 20
"""How long a run takes is only known after the first."""


def alternate(
    options: EagerSettings,
    plain: Callable[[], float],
    recorded: Callable[[int], Sequence[float]],
    most: Callable[[], int],
    report: Progress,
) -> tuple[list[float], list[float]]:
    """Times, µs, of undisturbed runs and of recorded ones, made in blocks W P P W …

    `plain` makes one run; `recorded` makes as many as it is told, `most()` at the most, and gives
    the time of each. The order is turned from block to block, so that drift cancels out; the first
    makes half of the runs at the most, so that there are undisturbed ones on both sides.
    """
    walls: list[float] = []
    done: list[float] = []
    blocks = 0
    while wanted := missing(len(done), sum(done) / 1e6, options):
        count = min(_fitting(wanted, done), max(1, most()))
        least = max(min(count, _PLAIN_MOST), _PLAIN_LEAST) if blocks < 2 else 1
        whole = max(count // _PLAIN_SHARE, least)
        if blocks % 2 == 0:
            walls += _block(plain, whole)
        done += recorded(count)
        if blocks % 2:
            walls += _block(plain, whole)
        blocks += 1
        report(len(done), len(done) + missing(len(done), sum(done) / 1e6, options), "profiling")
    return walls, done


def missing(runs: int, seconds: float, options: EagerSettings) -> int:
    """Runs still to be made, by number and by time, when `runs` took `seconds`; 0 when enough."""
    least = options.runs if options.runs is not None else _LEAST_RUNS
    wanted = options.min_time
    if wanted is None:
        wanted = 0.0 if options.runs is not None else _DEFAULT_SECONDS
    by_time = 0
    if runs and seconds < wanted:
        by_time = int(runs / max(seconds, 1e-9) * (wanted - seconds)) + 1
    return max(0, least - runs, by_time)


def _fitting(wanted: int, done: Sequence[float]) -> int:
    """Runs of the next block: some seconds of them, and first of all no more than half."""
    if not done:
        return min(-(-wanted // 2), _FIRST_BLOCK)
    return min(wanted, max(1, int(_BLOCK_US * len(done) / max(sum(done), 1e-9))))


def _block(plain: Callable[[], float], count: int) -> list[float]:
    plain()  # threads and caches that slept since the last block are woken uncounted
    return [plain() for _ in range(count)]
