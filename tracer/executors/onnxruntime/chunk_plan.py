"""How many runs the next profiled session makes, and how many warm-ups before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracer.executors.onnxruntime.settings import OrtSettings

MOST_EVENTS = 900_000
"""onnxruntime's profiler drops what is beyond 1,000,000 events without a word."""

_EVENT_BUDGET = 50_000
"""Events of a chunk where runs are short: some 40 MB of profile."""

_WORTHWHILE_RUNS = 20
"""A session is opened for so many runs at least, if the profiler can hold them."""

_PLAIN_SHARE = 10
"""One undisturbed run for so many profiled ones, once there are many."""

_PLAIN_MOST, _PLAIN_LEAST = 20, 5
_PROFILED_TURN, _MOST_TURNS = 20, 3

_SESSION_WARMUP = 5
_LEAST_RUNS = 10
_DEFAULT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Done:
    """What is recorded so far; `events` are those of one run, a guess before the first."""

    runs: int
    seconds: float
    events: int


def missing(done: Done, options: OrtSettings) -> int:
    """Runs still to be made, by number and by time; 0 when there are enough."""
    least = options.runs if options.runs is not None else _LEAST_RUNS
    seconds = options.min_time
    if seconds is None:
        seconds = 0.0 if options.runs is not None else _DEFAULT_SECONDS
    by_time = 0
    if done.runs and done.seconds < seconds:
        rate = done.runs / max(done.seconds, 1e-9)
        by_time = int(rate * (seconds - done.seconds)) + 1
    return max(0, least - done.runs, by_time)


def undisturbed(profiled: int) -> tuple[int, int]:
    """Turns of undisturbed runs beside so many profiled ones, and how many runs a turn has.

    There are two turns at least, one before the profiled runs and one after them.
    """
    total = max(profiled // _PLAIN_SHARE, min(profiled, _PLAIN_MOST), _PLAIN_LEAST)
    turns = min(_MOST_TURNS, 2 + profiled // _PROFILED_TURN)
    return turns, -(-total // turns)


def parts(profiled: int) -> Sequence[int]:
    """How many of so many profiled runs lie between one turn of undisturbed runs and the next."""
    places = undisturbed(profiled)[0] - 1
    return [profiled * (i + 1) // places - profiled * i // places for i in range(places)]


def plan(done: Done, options: OrtSettings) -> tuple[int, int]:
    """Warm-ups before each part of the next session's runs, and these runs.

    The first one makes half the runs at most, and few of them: how many events a run makes is only
    known after it.
    """
    wanted = missing(done, options)
    room = MOST_EVENTS // done.events
    warmup = min(options.warmup, _SESSION_WARMUP, max(0, room - 1) // (_MOST_TURNS - 1))
    if done.runs:
        fitting = max(_EVENT_BUDGET // done.events, _WORTHWHILE_RUNS)
        return warmup, min(wanted, fitting, max(1, room - warmup * (_MOST_TURNS - 1)))
    return min(warmup, 1), min(-(-wanted // 2), max(1, _EVENT_BUDGET // (4 * done.events)))
