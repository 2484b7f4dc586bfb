"""Plans the next profiled session: how many runs, and how many warm-up runs before them."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracer.executors.onnxruntime.settings import OrtSettings

MOST_EVENTS = 900_000
"""onnxruntime's profiler drops events beyond 1,000,000 without a warning."""

_EVENT_BUDGET = 50_000
"""Events of a session where runs are short: some 40 MB of profile."""

_WORTHWHILE_RUNS = 20
"""Least runs for which a session is opened, if the profiler can hold their events."""

_PLAIN_SHARE = 10
"""Profiled runs for each undisturbed run, once there are many."""

_PLAIN_MOST, _PLAIN_LEAST = 20, 5
_PROFILED_TURN, _MOST_TURNS = 20, 3

_SESSION_WARMUP = 5


@dataclass(frozen=True, slots=True)
class Done:
    """The runs recorded so far; `events` is the number in one run, a guess before the first."""

    runs: int
    seconds: float
    events: int


def undisturbed(profiled: int) -> tuple[int, int]:
    """Returns the turns of undisturbed runs beside `profiled` runs, and the runs in a turn.

    There are at least two turns, one before the profiled runs and one after them.
    """
    total = max(profiled // _PLAIN_SHARE, min(profiled, _PLAIN_MOST), _PLAIN_LEAST)
    turns = min(_MOST_TURNS, 2 + profiled // _PROFILED_TURN)
    return turns, -(-total // turns)


def parts(profiled: int) -> Sequence[int]:
    """Returns how many of the `profiled` runs lie between consecutive turns of undisturbed runs."""
    count = undisturbed(profiled)[0] - 1
    return [profiled * (i + 1) // count - profiled * i // count for i in range(count)]


def plan(done: Done, settings: OrtSettings) -> tuple[int, int]:
    """Returns the warm-up runs before each part of the next session, and the runs of the session.

    The first session makes at most half the runs, and few: the number of events in a run is only
    known after it.
    """
    missing = settings.missing_runs(done.runs, done.seconds)
    room = MOST_EVENTS // done.events
    warmup = min(settings.warmup, _SESSION_WARMUP, max(0, room - 1) // (_MOST_TURNS - 1))
    if done.runs:
        fitting = max(_EVENT_BUDGET // done.events, _WORTHWHILE_RUNS)
        return warmup, min(missing, fitting, max(1, room - warmup * (_MOST_TURNS - 1)))
    return min(warmup, 1), min(-(-missing // 2), max(1, _EVENT_BUDGET // (4 * done.events)))
