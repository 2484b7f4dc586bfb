"""Alternates blocks of undisturbed runs and of recorded runs until there are enough."""

from collections.abc import Callable, Sequence

import numpy as np

from tracer.executors.measuring import MeasuringSettings
from tracer.executors.precision import spread
from tracer.support.progress import Progress
from tracer.support.timing import RunTimer
from tracer.support.types import FloatArray

_PLAIN_SHARE = 10
"""Recorded runs for each undisturbed run, once there are many."""
_PLAIN_MOST, _PLAIN_LEAST = 20, 5
"""Limits of the undisturbed runs before and after the first recorded runs."""

_BLOCK_US = 2e6
_FIRST_BLOCK = 20
"""Most runs of the first block, before which the time of a run is unknown."""


def alternate(
    settings: MeasuringSettings,
    plain: Callable[[], float],
    recorded: Callable[[int], RunTimer],
    most: Callable[[], int],
    samples: Callable[[], FloatArray],
    progress: Progress,
) -> tuple[RunTimer, RunTimer]:
    """Returns the times of undisturbed runs and of recorded runs in blocks W P P W …

    `plain` makes one run and returns its time, µs; `recorded` makes a number of runs, at most
    `most()`, and `samples` has the times of their kernels. The order alternates from block to
    block, so that drift cancels out. The first block makes at most half of the runs, so that
    undisturbed runs lie on both sides.
    """
    walls, timer = RunTimer(), RunTimer()
    times = timer.us
    blocks = 0
    expected_s = plain() / 1e6
    uncertain = 0.0
    while missing := settings.missing_runs(len(times), sum(times) / 1e6, expected_s, uncertain):
        count = min(_fitting(missing, times), max(1, most()))
        least = max(min(count, _PLAIN_MOST), _PLAIN_LEAST) if blocks < 2 else 1
        plain_count = max(count // _PLAIN_SHARE, least)
        if blocks % 2 == 0:
            _add_block(walls, plain, plain_count)
        made = recorded(count)
        timer.add(made, range(len(made.us)))
        if blocks % 2:
            _add_block(walls, plain, plain_count)
        blocks += 1
        known = samples()
        uncertain = spread(settings, known, np.zeros(known.shape[1]), 0.0)
        seconds = sum(times) / 1e6
        total = len(times) + settings.missing_runs(len(times), seconds, spread=uncertain)
        progress(len(times), total, "profiling")
    return walls, timer


def _fitting(missing: int, times: Sequence[float]) -> int:
    """Returns the runs of the next block: some seconds of them, in the first at most half."""
    if not times:
        return min(-(-missing // 2), _FIRST_BLOCK)
    return min(missing, max(1, int(_BLOCK_US * len(times) / max(sum(times), 1e-9))))


def _add_block(walls: RunTimer, plain: Callable[[], float], count: int) -> None:
    plain()  # wakes threads and fills caches that slept since the last block; not counted
    for _ in range(count):
        walls.take(plain)
