"""Profiles the live sides alternately: A B, B A, A B …, each turn in a new session.

Load of the machine then affects all sides alike, and the reversed order cancels a steady drift.
Each turn has its own session because the memory layout makes one session slightly faster than the
next on the same model; that is noise and no difference. Layers are compared by these turns, and
whole runs by `tracer.api.compare.whole_runs`.
"""

import statistics
import time
from collections.abc import Sequence

import numpy as np

from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import LiveSide
from tracer.containment import signals
from tracer.records.trace import Trace
from tracer.support.progress import Progress

_TURN_SECONDS = 0.02
_FIRST_RUNS, _LEAST_RUNS, _MOST_RUNS = 5, 5, 100
_BUDGET_SECONDS = 10.0
_LEAST_ROUNDS_USED = 4
_LEAST_ROUNDS, _MOST_ROUNDS = 8, 30


def first_turns(
    sides: Sequence[LiveSide], settings: SideSettings, runs: int | None
) -> tuple[list[Trace], float]:
    """Returns a trace of each side, and the seconds that they took."""
    start = time.monotonic()
    first = [side.run(runs or _FIRST_RUNS, settings) for side in sides]
    return first, time.monotonic() - start


def take_turns(
    sides: Sequence[LiveSide],
    settings: SideSettings,
    first: Sequence[Trace],
    seconds: float,
    rounds: int | None,
    runs: int | None,
    report: Progress,
) -> list[list[Trace]]:
    """Returns for each side its traces, one for each round, after its `first` in so many seconds.

    `runs` is the number of inferences of a turn [default: as many as take 0.02 s]. `rounds`
    [default: as many as take 10 s, from 8 to 30]. A signal leaves the rounds that are complete by
    then, and `signals.ending` tells it.
    """
    counts = [runs or _runs(trace) for trace in first]
    total = rounds or max(_LEAST_ROUNDS, min(_MOST_ROUNDS, int(_BUDGET_SECONDS / seconds)))
    traces: list[list[Trace]] = [[] for _ in sides]
    for done in range(total):
        order = range(len(sides)) if done % 2 == 0 else reversed(range(len(sides)))
        try:
            report(done, total, "taking turns")
            for index in order:
                traces[index].append(sides[index].again(first[index], counts[index], settings))
        except signals.ENDINGS:
            if not signals.ending():
                raise
        if signals.ending():  # the turn that it met may be cut short
            return [side[:done] or [trace] for side, trace in zip(traces, first, strict=True)]
    report(total, total, "taking turns")
    return traces


def quieter(rounds: Sequence[Sequence[Trace]]) -> list[list[Trace]]:
    """Returns for each side the traces of the quieter half of the rounds, at least four.

    Loudness of a round is the sum of its plain and instrumented times over all sides, each divided
    by its median. This choice favours no side: without a difference, any two sides of a round are
    exchangeable.
    """
    runs = [[trace.runs[0] for trace in side] for side in rounds]
    times = np.array(
        [[np.median(run.wall_us) for run in side] for side in runs]
        + [[np.median(run.instrumented_us) for run in side] for side in runs]
    )
    loudness = (times / np.median(times, axis=1, keepdims=True)).sum(axis=0)
    count = max(-(-len(loudness) // 2), min(_LEAST_ROUNDS_USED, len(loudness)))
    quiet = np.sort(np.argsort(loudness, kind="stable")[:count])
    return [[side[index] for index in quiet] for side in rounds]


def _runs(trace: Trace) -> int:
    """Returns the number of inferences that fit in a turn."""
    inference = statistics.median(trace.runs[0].wall_us) / 1e6
    return max(_LEAST_RUNS, min(_MOST_RUNS, int(_TURN_SECONDS / max(inference, 1e-9))))
