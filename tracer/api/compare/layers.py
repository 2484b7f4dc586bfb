"""Profiles the live sides in blocks that take turns, beside undisturbed runs."""

from collections.abc import Sequence

import numpy as np

from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import Runner
from tracer.containment import signals
from tracer.executors.alternation import Pace, by_side, keeping, sessions
from tracer.records.turns import Turns
from tracer.support.progress import Progress
from tracer.support.types import FloatArray

_PACE = Pace(block_us=500.0, least_runs=5, session_s=0.1)
"""Blocks are longer than those of whole runs: a profiler's clock that counts whole µs tells a layer
of some µs only on average over runs."""

_LEAST_SESSIONS = 8
"""Fewer leave an interval too wide to hold against a test of many layers at once."""


def layers(
    runners: Sequence[Runner], settings: SideSettings, together: bool, progress: Progress
) -> tuple[list[list[Turns]], tuple[str, ...]]:
    """Returns the turns of each side by session, and a note if the time is up before all are made.

    In a session all sides have the same number of turns, which belong together by position.
    `settings.sessions` are made. Sides that do not fit in memory `together` have one turn each. A
    signal leaves the sessions that are complete by then.
    """
    least = min(_LEAST_SESSIONS, settings.sessions)
    made = sessions(
        [runner.recording for runner in runners],
        _PACE,
        settings,
        together,
        least,
        lambda made: len(made) >= settings.sessions,
        keeping(progress, "comparing layers"),
    )
    complete = [session for session in map(_complete, made) if len(session[0])]
    turns = by_side(complete, len(runners))
    if len(complete) >= settings.sessions or signals.ending():
        return turns, ()
    note = f"layers are compared in {len(complete)} sessions of each side, not {settings.sessions}"
    return turns, (f"{note}: --max-seconds allows more time",)


def whole(turns: Sequence[Turns]) -> list[FloatArray]:
    """Returns the median undisturbed run of each session, µs, as its only block."""
    return [np.array([np.median(each.wall_us)]) for each in turns]


def _complete(session: Sequence[Turns]) -> list[Turns]:
    """Returns the turns that all sides have: a profiler may lose the events of the last ones."""
    count = min(map(len, session))
    return [side.first(count) for side in session]
