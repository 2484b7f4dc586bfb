"""Times whole runs of the live sides, without a profiler, in blocks that take turns."""

from collections.abc import Sequence
from functools import partial

from tracer.analyzers.compare.contrast import FINEST, of_sessions
from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import Runner
from tracer.executors.alternation import Pace, by_side, keeping, sessions, timed
from tracer.support.progress import Progress
from tracer.support.types import FloatArray

_PACE = Pace(block_us=100.0, least_runs=1, session_s=0.05)
_LEAST_SESSIONS = 4
_PASS = 8
"""Sessions between two looks at the interval."""


Blocks = list[FloatArray]
"""Median time of the runs of each block, µs: an array for each session."""


def whole_runs(
    runners: Sequence[Runner], settings: SideSettings, progress: Progress
) -> tuple[list[Blocks], tuple[str, ...]]:
    """Returns the blocks of each side, and a note on how exact their ratios are.

    In a session all sides have the same number of blocks, which belong together by position.
    After `settings.sessions` further ones are made until all intervals lie within
    `settings.precision` of their ratio, or the time is up. A signal leaves the sessions that are
    complete by then.
    """

    def is_enough(made: Sequence[Sequence[FloatArray]]) -> bool:
        if not _is_time_to_look(len(made), settings):
            return False
        return _half_width(by_side(made, len(runners))) <= settings.precision

    openers = [partial(timed, runner.ready) for runner in runners]
    report = keeping(progress, "comparing whole runs")
    made = sessions(openers, _PACE, settings, True, _LEAST_SESSIONS, is_enough, report)
    blocks = by_side(made, len(runners))
    return blocks, (_note(blocks, settings),) if len(made) > 1 else ()


def _is_time_to_look(count: int, settings: SideSettings) -> bool:
    """Tells whether to look at the interval: each look more would end a few turns too early."""
    return count >= settings.sessions and (count - settings.sessions) % _PASS == 0


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
    advice = "--max-seconds allows more time, --precision less"
    if settings.precision < FINEST:
        advice = f"two sides may differ by ±{FINEST:.2g} through their places in memory alone"
    return (
        f"whole runs are compared to ±{reached:.2g}, not ±{settings.precision:.2g}, in {made}: "
        f"{advice}"
    )
