"""Measures runs: warms up, tells how precise they are, and lets several subjects take turns.

All sides of a session are open and take turns in short blocks of runs. What slows the machine for
longer than a block slows all sides alike, so it leaves the ratio of the blocks of one turn. The
memory layout makes one session slightly faster than the next on the same model, by more than blocks
scatter: so all sessions are opened anew several times.

A side is `Timed`, whose runs are undisturbed, or a `Recorder` of runs under a profiler.
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from tracer.containment import activity, memory, signals
from tracer.containment.activity import Progress, silent
from tracer.executors.settings import PRECISION, MeasuringSettings
from tracer.records.counted_runs import MachineUse, Usage
from tracer.records.trace import Turns
from tracer.support.measurements import HAS_USAGE, SPINNING_S, Moment, RunTimer, summarize
from tracer.support.types import FloatArray

SECONDS = 5.0
"""Longest time of each side, of two at least, for the sessions of whole runs, and for those of
layers, unless the command has a limit of its own."""
_SHARE = 0.5
"""Share of the time that is left to a command with a limit; what follows needs the rest."""
_LEAST_TURNS = 3
_AWAKE_BLOCK_US = 5_000.0
"""With several threads: each block waits until those of the side before sleep, and must be worth
it."""
MeasuredT = TypeVar("MeasuredT", covariant=True)
Measured = TypeVar("Measured")
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
    return MachineUse(usages[0], usages[1], memory.processor_count(), others)


class Order(Protocol):
    """What the order of the turns and the pauses between them depend on."""

    @property
    def seed(self) -> int:
        """Seed of the order of the sides."""

    @property
    def threads(self) -> int:
        """Threads of a side: no pause is needed at 1."""


class Open(Protocol[MeasuredT]):
    """A side that is open for the turns of one session."""

    def timed(self) -> float:
        """Makes a run and returns its time, µs."""

    def take_turn(self, runs: int, rest: Callable[[], object]) -> None:
        """Makes a block of `runs`; a `rest` comes before runs that threads of others may slow."""

    def finish(self) -> MeasuredT:
        """Returns what the turns measured, in order."""


Opener: TypeAlias = Callable[[], AbstractContextManager[Open[Measured]]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a block and a session take.

    A block takes `block_us`, and has `least_runs` or as many as take that many ms. A session lasts
    as long as it took to open, at least `session_s`: many short ones say more than few long ones,
    as the layouts of memory differ by more than the blocks of a session.
    """

    block_us: float
    least_runs: int
    session_s: float

    def runs(self, run_us: float) -> int:
        """Returns the number of runs of a block, one of which takes `run_us`."""
        run_us = max(run_us, 1e-3)
        least = min(self.least_runs, 1000 * self.least_runs / run_us)
        return math.ceil(max(self.block_us / run_us, least))


def sessions(
    openers: Sequence[Opener[Measured]],
    pace: Pace,
    order: Order,
    together: bool,
    least: int,
    is_enough: Callable[[Sequence[Sequence[Measured]]], bool],
    progress: Callable[[int, int], object],
    seconds: float | None = None,
) -> list[list[Measured]]:
    """Returns what was measured, by session and side.

    Sides that do not fit in memory `together` are opened one after the other, for a turn each.
    Sessions are made until they are enough, or `seconds` [default: 5 for each side and for two at
    least, or half of what a limit leaves] are over and there are `least` of them. A signal leaves
    those that are complete by then:
    none has one side alone.
    """
    chance = random.Random(order.seed)  # noqa: S311
    openings, turns = (_orders(len(openers), chance) for _ in range(2))
    began = time.monotonic()
    if seconds is None:
        left = signals.seconds_left()
        seconds = _SHARE * left if math.isfinite(left) else SECONDS * max(2, len(openers))
    made = list[list[Measured]]()
    rest = _go_on if order.threads == 1 else partial(time.sleep, SPINNING_S)
    if order.threads != 1:
        pace = replace(pace, block_us=max(pace.block_us, _AWAKE_BLOCK_US))
    try:
        while True:
            opening = next(openings)
            if together:
                made.append(_session(openers, pace, rest, opening, turns))
            else:
                measured = {place: _one_turn(openers[place], pace, rest) for place in opening}
                made.append([measured[place] for place in range(len(openers))])
            spent = time.monotonic() - began
            progress(round(min(spent, seconds)), round(seconds))
            if is_enough(made) or (spent > seconds and len(made) >= least):
                return made
    except signals.ENDINGS:
        if not signals.ending():
            raise
        return made


def _session(
    openers: Sequence[Opener[Measured]],
    pace: Pace,
    rest: Callable[[], object],
    opening: Sequence[int],
    orders: Iterator[Sequence[int]],
) -> list[Measured]:
    """Opens all sides, which then take turns in these orders; returns what each measured."""
    places, began = range(len(openers)), time.monotonic()
    with ExitStack() as stack:
        opened = {place: stack.enter_context(openers[place]()) for place in opening}
        runs = [pace.runs(opened[place].timed()) for place in places]
        ready = time.monotonic()
        end = ready + max(ready - began, pace.session_s)
        turns = 0
        while turns < _LEAST_TURNS or time.monotonic() < end:
            for place in next(orders):
                opened[place].take_turn(runs[place], rest)
            turns += 1
            activity.step()
        return [opened[place].finish() for place in places]


def _go_on() -> None:
    """Rests not at all; a side in another process is sent this."""


def _one_turn(opener: Opener[Measured], pace: Pace, rest: Callable[[], object]) -> Measured:
    """Opens a side for a turn, and returns what it measured; nothing of it stays in memory."""
    with opener() as side:
        side.take_turn(pace.runs(side.timed()), rest)
        return side.finish()


def _orders(sides: int, chance: random.Random) -> Iterator[Sequence[int]]:
    """Yields a random order of the sides, then its reverse, and so on: what comes first is slower
    or faster, by where its memory lies, so each side is first equally often.
    """
    while True:
        order = chance.sample(range(sides), sides)
        yield order
        yield order[::-1]


@dataclass
class Timed:
    """A side whose undisturbed runs are timed; `medians` has an entry for each block, µs."""

    timed: Callable[[], float]
    medians: list[float] = field(default_factory=list)

    def take_turn(self, runs: int, rest: Callable[[], object]) -> None:
        """Times `runs` after one that fills caches and wakes threads."""
        rest()
        self.timed()
        self.medians.append(statistics.median(self.timed() for _ in range(runs)))

    def finish(self) -> FloatArray:
        """Returns the blocks."""
        return np.array(self.medians)


@contextmanager
def timed(ready: Callable[[], AbstractContextManager[Callable[[], float]]]) -> Iterator[Timed]:
    """Opens a side by `ready`, whose calls time a run in µs, for turns of undisturbed runs."""
    with ready() as run:
        yield Timed(run)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Recorded runs in order: own times (runs × kernels) and durations (runs), in µs."""

    kernels: Sequence[str]
    samples_us: FloatArray
    profiled_us: FloatArray


@dataclass
class Recorder:
    """A session of one subject, open beside the sessions of others.

    `plain` makes an undisturbed run and returns its time, µs; `empty` a run without nodes. `record`
    makes a number of recorded runs, and `read` returns all of them. Runs that the profiler lost are
    missing at the end.
    """

    plain: Callable[[], float]
    record: Callable[[int], object]
    read: Callable[[], RunTimes]
    empty: Callable[[], float] | None = None
    _turns: int = 0
    _runs: int = 0
    _wall: list[float] = field(default_factory=list, repr=False)
    _empty: list[float] = field(default_factory=list, repr=False)

    def timed(self) -> float:
        """Makes an undisturbed run and returns its time, µs."""
        return self.plain()

    def take_turn(self, runs: int, rest: Callable[[], object]) -> None:
        """Records `runs`, the same number in every turn; before the first come undisturbed runs.

        A `rest` comes before both.
        """
        if not self._turns:
            rest()
            self.plain()  # fills caches and wakes threads; not counted
            for _ in range(runs):
                self._wall.append(self.plain())
                activity.step()
                if self.empty is not None:  # in caches as a run leaves them
                    self._empty.append(self.empty())
        rest()
        self.record(runs)
        activity.step()
        self._turns, self._runs = self._turns + 1, runs

    def finish(self) -> Turns:
        """Returns the turns whose recorded runs are complete."""
        times, runs = self.read(), self._runs
        turns = min(self._turns, len(times.profiled_us) // runs)
        count = turns * runs
        kernels = tuple(times.kernels)
        return Turns(
            kernels,
            times.samples_us[:count].reshape(turns, runs, len(kernels)),
            times.profiled_us[:count].reshape(turns, runs),
            np.array(self._wall),
            None if self.empty is None else np.array(self._empty),
        )


def by_side(made: Sequence[Sequence[Measured]], sides: int) -> list[list[Measured]]:
    """Returns what was measured by side and session."""
    return [[session[side] for session in made] for side in range(sides)]


def counting(progress: Progress, what: str) -> Callable[[int, int], object]:
    """Returns a progress of seconds."""
    return lambda done, total: progress(done, total, what)


def keeping(progress: Progress, what: str) -> Callable[[int, int], object]:
    """Returns a progress of seconds of what is kept, as far as it is complete, after a signal."""
    count = counting(progress, what)

    def report(done: int, total: int) -> None:
        signals.keep(True)
        count(done, total)

    return report
