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

_PLAIN_MOST, _PLAIN_LEAST = 20, 3
"""Undisturbed runs in a session of few runs: as many as these, within these limits."""
_PROFILED_TURN, _MOST_TURNS = 20, 3

_SESSION_WARMUP = 5
_WAKING_S = 0.1
"""Seconds of runs after which threads are awake and caches are full."""


@dataclass(frozen=True, slots=True)
class Done:
    """The runs recorded so far; `events` is the number in one run, a guess before the first.

    `expected_s` is the time of a run before the first, 0 if unknown, and `spread` the uncertainty
    of the slowest kernels ÷ what it may be.
    """

    runs: int
    seconds: float
    events: int
    expected_s: float = 0.0
    spread: float = 0.0

    def missing(self, settings: OrtSettings) -> int:
        """Returns how many runs to add."""
        return settings.missing_runs(self.runs, self.seconds, self.expected_s, self.spread)

    def waking(self, settings: OrtSettings) -> int:
        """Returns how many runs wake threads and fill caches: one is enough of long runs."""
        run_s = self.seconds / self.runs if self.runs else self.expected_s
        enough = 1 + int(_WAKING_S / run_s) if run_s > 0 else _SESSION_WARMUP
        return min(settings.warmup, _SESSION_WARMUP, enough)


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
    missing = done.missing(settings)
    room = MOST_EVENTS // done.events
    warmup = min(done.waking(settings), max(0, room - 1) // (_MOST_TURNS - 1))
    if done.runs:
        fitting = max(_EVENT_BUDGET // done.events, _WORTHWHILE_RUNS)
        return warmup, min(missing, fitting, max(1, room - warmup * (_MOST_TURNS - 1)))
    return min(warmup, 1), min(-(-missing // 2), max(1, _EVENT_BUDGET // (4 * done.events)))
