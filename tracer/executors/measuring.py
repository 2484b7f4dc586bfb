"""Warms up, and says of the runs so far how precise they are and how busy the machine was."""

import time
from collections.abc import Callable

import numpy as np

from tracer.containment import activity
from tracer.executors.settings import PRECISION, MeasuringSettings
from tracer.records.trace import MachineUse, Usage
from tracer.support import processors
from tracer.support.progress import Progress, silent
from tracer.support.statistics import summarize
from tracer.support.timing import HAS_USAGE, Moment, RunTimer
from tracer.support.types import FloatArray

_TOP = 10
"""Rows that are to be precise: those that a reader looks at."""

_WARMUP_SECONDS = 3.0
"""Seconds after which warm-up ends, unless the number of runs is set."""


def warm_up(
    run: Callable[[], object], settings: MeasuringSettings, progress: Progress = silent
) -> None:
    """Makes the warm-up runs; without a number of runs, for three seconds at most."""
    began = time.monotonic()
    for done in range(settings.warmup):
        if settings.runs is None and time.monotonic() - began > _WARMUP_SECONDS:
            break
        progress(done, settings.warmup, "warming up")
        run()
        activity.step()
    progress(settings.warmup, settings.warmup, "warming up")


def spread(
    settings: MeasuringSettings, samples: FloatArray, bias: FloatArray, tick: float
) -> float:
    """Returns the uncertainty of the ten slowest kernels ÷ what it may be; 0 if any will do.

    `samples` (runs × kernels) hold an overhead of `bias`, µs, by a clock of whole `tick`s. A kernel
    whose interval excludes those of its neighbours is told from them, however wide.
    """
    if settings.runs is not None or settings.min_time is not None or not samples.size:
        return 0.0
    summary = summarize(samples, tick)
    order = np.argsort(bias - summary.mean)[: _TOP + 1]
    times, half = (summary.mean - bias)[order], summary.ci95_half[order]
    overlaps = times[:-1] - half[:-1] < times[1:] + half[1:]
    unclear = np.append(overlaps, False) | np.append(False, overlaps)
    allowed = np.maximum((settings.precision or PRECISION) * times, tick / 2)
    ratios = np.where(unclear & (allowed > 0), half / np.maximum(allowed, 1e-9), 0.0)[:_TOP]
    return float(np.nan_to_num(ratios).max(initial=0.0))


def use_of(wall: RunTimer, recorded: RunTimer, began: Moment) -> MachineUse | None:
    """Returns how the machine was used since `began`; None where the system does not tell."""
    if not HAS_USAGE:
        return None
    load, usages = began.until_now(), []
    for timer in (wall, recorded):
        usages.append(Usage(np.array(timer.switches, np.float64), np.array(timer.cpu_us)))
    # What the host of a virtual machine took is as lost as what other programs had.
    others = None if load.others is None else min(1.0, load.others + (load.stolen or 0.0))
    return MachineUse(usages[0], usages[1], processors.available(), others)
