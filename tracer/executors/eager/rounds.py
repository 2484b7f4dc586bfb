"""Runs in turn: some that nothing disturbs, some that are recorded, until there are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.executors.eager.options import Options

Progress = Callable[[int, int, str], None]

_LEAST_RUNS = 10
_DEFAULT_SECONDS = 1.0
_PLAIN_SHARE = 10
"""One undisturbed run for so many recorded ones, once there are many."""
_PLAIN_MOST, _PLAIN_LEAST = 20, 5


def alternate(
    options: Options,
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
        count = min(wanted if done else -(-wanted // 2), max(1, most()))
        whole = max(count // _PLAIN_SHARE, min(count, _PLAIN_MOST), _PLAIN_LEAST)
        if blocks % 2 == 0:
            walls += _block(plain, whole)
        done += recorded(count)
        if blocks % 2:
            walls += _block(plain, whole)
        blocks += 1
        report(len(done), len(done) + missing(len(done), sum(done) / 1e6, options), "profiling")
    return walls, done


def missing(runs: int, seconds: float, options: Options) -> int:
    """Runs still to be made, by number and by time, when `runs` took `seconds`; 0 when enough."""
    least = options.runs if options.runs is not None else _LEAST_RUNS
    wanted = options.min_time
    if wanted is None:
        wanted = 0.0 if options.runs is not None else _DEFAULT_SECONDS
    by_time = 0
    if runs and seconds < wanted:
        by_time = int(runs / max(seconds, 1e-9) * (wanted - seconds)) + 1
    return max(0, least - runs, by_time)


def _block(plain: Callable[[], float], count: int) -> list[float]:
    plain()  # threads and caches that slept since the last block are woken uncounted
    return [plain() for _ in range(count)]
