"""Sides that are run now take turns: A B, B A, A B …, each turn in a session of its own.

What the machine does meanwhile meets all of them alike, and the order turns so that a steady drift
cancels out. A session of its own for every turn, because where its memory happens to lie makes one
session a little faster than the next on the same model: that, too, is chance and no difference.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np

from tracer.api.compare.targets import Settings, Target
from tracer.records.trace import Trace
from tracer.support.progress import Progress, silent

_TURN_SECONDS = 0.02
_FIRST_RUNS, _LEAST_RUNS, _MOST_RUNS = 5, 5, 100
_BUDGET_SECONDS = 20.0
_LEAST_KEPT = 4
_LEAST_ROUNDS, _MOST_ROUNDS = 8, 30


def take_turns(
    targets: Sequence[Target],
    settings: Settings,
    rounds: int | None = None,
    runs: int | None = None,
    progress: Progress | None = None,
) -> list[list[Trace]]:
    """For each target its traces, one for each round.

    `runs` are the inferences of a turn; without it as many as take a fiftieth of a second.
    Without `rounds`, 30, or fewer where they would take long, but 8 at least. A turn of each
    before the first round is not kept.
    """
    report = progress or (silent)
    start = time.monotonic()
    first = [target.run(runs or _FIRST_RUNS, settings) for target in targets]
    seconds = time.monotonic() - start
    wanted = [runs or _runs(trace) for trace in first]
    total = rounds or max(_LEAST_ROUNDS, min(_MOST_ROUNDS, int(_BUDGET_SECONDS / seconds)))
    found: list[list[Trace]] = [[] for _ in targets]
    for done in range(total):
        report(done, total, "taking turns")
        order = range(len(targets)) if done % 2 == 0 else reversed(range(len(targets)))
        for place in order:
            found[place].append(targets[place].run(wanted[place], settings))
    report(total, total, "taking turns")
    return found


def quieter(rounds: Sequence[Sequence[Trace]]) -> list[list[Trace]]:
    """For each target the traces of the quieter half of the rounds, of four at least.

    A round is as loud as its inferences took long, plain and instrumented ones of all sides
    together, each measured by its own median. Choosing so favours no side: where there is no
    difference, any two that make a round could change places.
    """
    runs = [[trace.runs[0] for trace in side] for side in rounds]
    times = np.array(
        [[np.median(run.wall_us) for run in side] for side in runs]
        + [[np.median(run.instrumented_us) for run in side] for side in runs]
    )
    loudness = (times / np.median(times, axis=1, keepdims=True)).sum(axis=0)
    kept = max(-(-len(loudness) // 2), min(_LEAST_KEPT, len(loudness)))
    chosen = np.sort(np.argsort(loudness, kind="stable")[:kept])
    return [[side[place] for place in chosen] for side in rounds]


def _runs(trace: Trace) -> int:
    """How many inferences a turn has time for."""
    inference = statistics.median(trace.runs[0].wall_us) / 1e6
    return max(_LEAST_RUNS, min(_MOST_RUNS, int(_TURN_SECONDS / max(inference, 1e-9))))
