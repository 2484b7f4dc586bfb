"""Times whole runs of the live sides in short blocks that take turns, in sessions made anew.

What slows the machine for longer than a block slows all sides alike, so it leaves the ratio of the
blocks of one turn. The memory layout makes one session slightly faster than the next on the same
model, by more than blocks scatter: so all sessions are opened anew several times.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from analyzers.compare.contrast import of_sessions
from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import LiveSide
from tracer.containment import activity, signals
from tracer.support.progress import Progress
from tracer.support.timing import SPINNING_S
from tracer.support.types import FloatArray

_SECONDS = 10.0
"""Longest time for whole runs, unless the command has a limit of its own."""
_SHARE = 0.5
"""Share of the time that is left to a command with a limit; layers and values need the rest."""

_BLOCK_US = 100.0
_LEAST_SESSION_S = 0.05
"""A session lasts as long as it took to open, at least this: many short ones say more than few
long ones, as the layouts of memory differ by more than the blocks of a session."""
_LEAST_TURNS, _LEAST_SESSIONS = 3, 4
_PASS = 8
"""Sessions between two looks at the interval."""

_AWAKE_BLOCK_US = 5_000.0
"""With several threads: each block waits until those of the side before sleep, and must be worth
it."""


Blocks = list[FloatArray]
"""Median time of the runs of each block, µs: an array for each session."""


def whole_runs(
    sides: Sequence[LiveSide], settings: SideSettings, progress: Progress
) -> tuple[list[Blocks], tuple[str, ...]]:
    """Returns the blocks of each side, and a note on how exact their ratios are.

    In a session all sides have the same number of blocks, which belong together by position.
    After `settings.sessions` further ones are made until all intervals lie within
    `settings.precision` of their ratio, or the time is up. A signal leaves the sessions that are
    complete by then.
    """
    began, chance = time.monotonic(), random.Random(settings.seed)  # noqa: S311
    seconds = _seconds()
    made: list[list[FloatArray]] = []  # whole sessions: a signal leaves none of one side alone
    try:
        while True:
            made.append(_session(sides, settings, chance))
            spent = time.monotonic() - began
            progress(round(min(spent, seconds)), round(seconds), "comparing whole runs")
            late = spent > seconds and len(made) >= _LEAST_SESSIONS
            if late or (_is_time_to_look(len(made), settings) and _is_exact(made, settings)):
                return _by_side(made), (_note(_by_side(made), settings),)
    except signals.ENDINGS:
        if not signals.ending():
            raise
        return _by_side(made) or [[] for _ in sides], ()


def _is_time_to_look(count: int, settings: SideSettings) -> bool:
    """Tells whether to look at the interval: each look more would end a few turns too early."""
    return count >= settings.sessions and (count - settings.sessions) % _PASS == 0


def _is_exact(made: Sequence[Sequence[FloatArray]], settings: SideSettings) -> bool:
    return _half_width(_by_side(made)) <= settings.precision


def _by_side(made: Sequence[Sequence[FloatArray]]) -> list[Blocks]:
    return [list(of_side) for of_side in zip(*made, strict=True)]


def _seconds() -> float:
    left = signals.seconds_left()
    return _SHARE * left if math.isfinite(left) else _SECONDS


def _session(
    sides: Sequence[LiveSide], settings: SideSettings, chance: random.Random
) -> list[FloatArray]:
    """Returns the blocks of each side in sessions of their own, which are opened in any order."""
    places = range(len(sides))
    shortest_us, rest_s = (_BLOCK_US, 0.0)
    if settings.threads != 1:
        shortest_us, rest_s = _AWAKE_BLOCK_US, SPINNING_S
    blocks: list[list[float]] = [[] for _ in sides]
    began = time.monotonic()
    with ExitStack() as stack:
        opened = {
            place: stack.enter_context(sides[place].ready(settings))
            for place in chance.sample(places, len(sides))
        }
        counts = [math.ceil(shortest_us / max(opened[place](), 1e-3)) for place in places]
        ready = time.monotonic()
        end = ready + max(ready - began, _LEAST_SESSION_S)
        while len(blocks[0]) < _LEAST_TURNS or time.monotonic() < end:
            for place in chance.sample(places, len(sides)):
                if rest_s:
                    time.sleep(rest_s)
                blocks[place].append(_block(opened[place], counts[place]))
            activity.step()
    return [np.array(of_side) for of_side in blocks]


def _block(timed: Callable[[], float], runs: int) -> float:
    """Returns the median time of `runs` after one that fills caches and wakes threads, µs."""
    timed()
    return statistics.median(timed() for _ in range(runs))


def _half_width(blocks: Sequence[Blocks]) -> float:
    """Returns half the width of the widest interval, as a share of its ratio."""
    first, *others = blocks
    contrasts = [of_sessions(first, other) for other in others]
    return max((each.high - each.low) / (2 * each.ratio) for each in contrasts)


def _note(blocks: Sequence[Blocks], settings: SideSettings) -> str:
    reached, turns = _half_width(blocks), sum(map(len, blocks[0]))
    made = f"{len(blocks[0])} sessions of each side, {turns:,} turns"
    if reached <= settings.precision:
        return f"whole runs took turns in {made}"
    return (
        f"whole runs are compared to ±{reached:.2g}, not ±{settings.precision:.2g}, in {made}: "
        "--max-seconds allows more time, --precision less"
    )
