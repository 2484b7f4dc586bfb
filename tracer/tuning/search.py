"""Searches the best combination of changes within a time.

1. Each form of each change is measured alone, beside the unchanged setup. The slower half is left
   out after each round, and the rest has more turns in the next (successive halving; Jamieson,
   Talwalkar, Non-stochastic best arm identification, 2016).
2. The best are added one after the other, each if it makes the combination better (greedy).
3. Each step that is left out without a loss is dropped, on measurements of their own.
4. The combination is measured beside the unchanged setup. If there is none, what was shown to be
   better alone is measured again, in the time that is left.
"""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tracer.analyzers.compare.contrast import Contrast, of_sessions
from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.errors import TracerError
from tracer.tuning.candidates import (
    NO_TIME,
    Bench,
    Blocks,
    Candidate,
    LimitedBench,
    Request,
    Workshop,
    wanted,
)
from tracer.tuning.changes import MEMORY, Findings, Steps, ordered
from tracer.tuning.setup import Setup

_ALONE, _TOGETHER, _DROPPING = 0.35, 0.65, 0.85
"""Shares of the time after which a part of the search ends: forms alone, combining, dropping."""
_FEW = 3
"""Forms that are no longer halved."""
_CLOSE = 1.1
"""Forms of a change that are tried in a combination: those this near to its best form."""
_PRECISION = 0.005
"""Half the interval of the final speed-up, as a share, after which no more turns are needed."""
_LAST = 1.2
"""Share of the time after which nothing may end that could be left out."""
_UNMEASURED = f"{NO_TIME} to measure it: raise --max-seconds"
Clock = Callable[[], float]


@dataclass(frozen=True)
class Found:
    """All candidates, the combination that is best, and the time of its samples ÷ the unchanged.

    Unless it `is_whole`, some candidates or the combination were not measured for lack of time.
    """

    candidates: Sequence[Candidate]
    best: Candidate
    contrast: Contrast
    memory_before: int | None
    is_whole: bool = True


@dataclass
class Search:
    """One search; `clock` counts seconds."""

    findings: Findings
    request: Request
    bench: Bench
    progress: Progress
    clock: Clock = time.monotonic
    _began: float = field(init=False)
    _bench: LimitedBench = field(init=False, repr=False)
    _workshop: Workshop = field(init=False, repr=False)
    _before: int | None = field(init=False, default=None)

    def run(self) -> Found:
        """Returns the best combination; what a time limit leaves has none.

        Raises the errors of the unchanged setup.
        """
        self._began = self.clock()
        self._bench = LimitedBench(
            self.bench, self.clock, self._began + _LAST * self.request.seconds
        )
        self._workshop = Workshop(self._base, self.request, self._bench)
        candidates = wanted(self.findings, self.request)
        try:
            best, contrast = self._best(candidates)
        except signals.TimeUp:
            if not signals.settle():
                raise
            signals.keep(True)
            for each in candidates:
                if not each.fault and len(each.own) < 2:
                    each.fault = _UNMEASURED
            best, contrast = None, Contrast()
        is_late = any(each.fault.startswith(NO_TIME) for each in candidates)
        unchanged = Candidate((), setup=self._base, memory=self._before)
        is_whole = best is not None and not is_late
        return Found(candidates, best or unchanged, contrast, self._before, is_whole)

    def _best(self, candidates: Sequence[Candidate]) -> tuple[Candidate | None, Contrast]:
        """Returns the best combination; None where there was no time to measure it."""
        self._workshop.make_each(candidates, self.progress, lambda: self._seconds_left(_TOGETHER))
        able = [each for each in candidates if not each.fault]
        self._before = self._bench.memory(self._base, self._seconds_left(_ALONE))
        share = _ALONE if self.request.goal == MEMORY else 0.1  # of the time
        for index, candidate in enumerate(able):
            seconds = self._seconds_left(share)
            if self._before is None or not seconds:
                break
            self.progress(index, len(able), "measuring memory")
            candidate.memory = self._bench.memory(self._setup(candidate), seconds)
        self._measure_alone(able)
        before = (self._before or None) if self.request.goal == MEMORY else None
        judge: Judge = ByTime(self._bench) if before is None else ByMemory(self._bench, before)
        steps = self._dropped(judge, self._combined(judge, able))
        if not steps and before is None:  # in a short time, combining has too few turns to show it
            shown = [each for each in able if each.contrast.high < 1 and _gains(each.contrast)]
            fastest = min(shown, key=lambda each: each.contrast.ratio, default=None)
            steps = fastest.steps if fastest is not None else ()
        best, contrast = Candidate(steps, memory=self._before), Contrast()
        self._workshop.make(best)
        if not steps:
            return best, contrast
        if self._bench.fits(2):
            sides = [self._base, self._setup(best)]
            contrast = of_sessions(*self._bench.race(sides, self._seconds_left(1.0), _is_exact))
            if before is None and not contrast.high < 1:
                return Candidate((), setup=self._base, memory=self._before), Contrast()
        elif before is None:
            return None, contrast
        best.memory = self._bench.memory(self._setup(best))
        return best, contrast

    @property
    def _base(self) -> Setup:
        return self.findings.setup

    def _seconds_left(self, share: float) -> float:
        """Returns the seconds until this share of the time is over."""
        return max(0.0, self._began + share * self.request.seconds - self.clock())

    def _measure_alone(self, candidates: Sequence[Candidate]) -> None:
        """Measures candidates beside the unchanged setup, the slower half in one round alone.

        Those for which there is no time have a fault that says so.
        """
        racing = list(candidates)
        while racing and not self._bench.fits(1 + len(racing)):
            racing.pop().fault = _UNMEASURED
        rounds = max(1, math.ceil(math.log2(max(len(racing), 1) / _FEW)) + 1)
        for last in reversed(range(rounds)):
            if not racing or not self._bench.fits(1 + len(racing)):
                return
            seconds = self._seconds_left(_ALONE) / (last + 1)
            first, *others = self._bench.race(
                [self._base, *map(self._setup, racing)], seconds, lambda blocks: False
            )
            for candidate, own in zip(racing, others, strict=True):
                candidate.add(first, own)
            pairs = [(each.contrast, each) for each in racing]
            pairs.sort(key=lambda pair: math.inf if math.isnan(pair[0].ratio) else pair[0].ratio)
            able = [each for contrast, each in pairs if not contrast.low > 1]
            racing = able[: max(_FEW, math.ceil(len(pairs) / 2))]

    def _combined(self, judge: "Judge", candidates: Sequence[Candidate]) -> Steps:
        """Returns steps that are added one after the other, the best alone first.

        One replaces another form of the same change.
        """
        steps: Steps = ()
        best: dict[str, float] = {}
        tried = []  # of each change its best form, and forms close to it
        for rank, index in sorted((judge.rank(each), n) for n, each in enumerate(candidates)):
            name = candidates[index].steps[0].change.name
            if rank < 1 and rank <= _CLOSE * best.setdefault(name, rank):
                tried.append(candidates[index])
        for index, candidate in enumerate(tried):
            seconds = self._seconds_left(_TOGETHER) / (len(tried) - index)
            if not seconds or not self._bench.fits(2):
                break
            self.progress(index, len(tried), f"combining {candidate.steps[0]}")
            names = {step.change.name for step in candidate.steps}
            others = [step for step in steps if step.change.name not in names]
            trial = Candidate(ordered([*others, *candidate.steps]))
            self._workshop.make(trial)
            if trial.fault:
                continue
            if judge.improves(self._workshop.setup(steps), self._setup(trial), seconds):
                steps = trial.steps
        return steps

    def _dropped(self, judge: "Judge", steps: Steps) -> Steps:
        """Returns `steps` without those that are not needed."""
        while steps and self._bench.fits(1 + len(steps)):
            seconds = self._seconds_left(_DROPPING) / (len(steps) + 1)
            shorter = []
            for step in steps:
                rest = tuple(each for each in steps if each is not step)
                with contextlib.suppress(TracerError):  # some cannot be made without another
                    shorter.append((rest, self._workshop.setup(rest)))
            full = self._workshop.setup(steps)
            index = judge.spare(full, [setup for _, setup in shorter], seconds)
            if index is None:
                break
            steps = shorter[index][0]
        return steps

    def _setup(self, candidate: Candidate) -> Setup:
        assert candidate.setup is not None  # those without one have a fault
        return candidate.setup


def _gains(contrast: Contrast) -> bool:
    return contrast.ratio <= 1 - LEAST_GAIN


def _is_exact(blocks: Sequence[Blocks]) -> bool:
    count = len(blocks[0])
    if count < 8 or count % 8:
        return False
    contrast = of_sessions(blocks[0], blocks[1])
    return (contrast.high - contrast.low) / (2 * contrast.ratio) <= _PRECISION


LEAST_GAIN = 0.01
"""A change that gains less, as a share, is not worth a line of code."""
_LEAST_SAVED = 0.02
"""The same for memory, which pages and threads make uneven by about one percent."""
_LOOK_EVERY, _MOST_SESSIONS = 8, 40
"""Sessions between two looks at the interval, and after which more tell little."""


class ByTime:
    """Judges by the time of a sample."""

    def __init__(self, bench: LimitedBench) -> None:
        self._bench = bench

    def rank(self, candidate: Candidate) -> float:
        """Returns its time ÷ that of the unchanged setup; infinite if it is shown to be slower."""
        contrast = candidate.contrast
        if math.isnan(contrast.low) or contrast.low > 1:
            return math.inf
        return contrast.ratio

    def improves(self, current: Setup, trial: Setup, seconds: float) -> bool:
        """Returns whether the time is shown to be less, by one percent or more."""
        first, second = self._bench.race([current, trial], seconds, _is_decided)
        contrast = of_sessions(first, second)
        return contrast.high < 1 and _gains(contrast)

    def spare(self, full: Setup, without: Sequence[Setup], seconds: float) -> int | None:
        """Returns the setup that is nearest to `full`, unless all are slower.

        These turns are fresh, so a step that was added by chance shows no gain here. The number of
        sessions does not depend on what they show.
        """
        first, *others = self._bench.race(
            [full, *without], seconds, lambda blocks: len(blocks[0]) >= _MOST_SESSIONS // 2
        )
        contrasts = [of_sessions(first, other) for other in others]
        # too little time makes an interval wide: no reason to drop what was shown to help
        spare = [
            index
            for index, c in enumerate(contrasts)
            if not c.ratio >= 1 + (LEAST_GAIN / 2 if c.low > 1 else LEAST_GAIN)
        ]
        return min(spare, key=lambda index: contrasts[index].ratio, default=None)


class ByMemory:
    """Judges by the memory that a session takes at most."""

    def __init__(self, bench: LimitedBench, before: int) -> None:
        self._bench, self._before = bench, before

    def rank(self, candidate: Candidate) -> float:
        """Returns its memory ÷ that of the unchanged setup; infinite if it is not known."""
        return math.inf if candidate.memory is None else candidate.memory / self._before

    def improves(self, current: Setup, trial: Setup, seconds: float) -> bool:
        """Returns whether the memory is less by two percent, in each of two measurements."""
        return all(self._is_less(trial, current) for _ in range(2))

    def spare(self, full: Setup, without: Sequence[Setup], seconds: float) -> int | None:
        """Returns the first setup without which the memory is as low."""
        return next((i for i, w in enumerate(without) if not self._is_less(full, w)), None)

    def _is_less(self, one: Setup, other: Setup) -> bool:
        own, theirs = self._bench.memory(one), self._bench.memory(other)
        return own is not None and theirs is not None and own < (1 - _LEAST_SAVED) * theirs


def _is_decided(blocks: Sequence[Blocks]) -> bool:
    """Returns whether the interval tells, at every eighth session, which of two sides is faster."""
    count = len(blocks[0])
    if count >= _MOST_SESSIONS:
        return True
    if count % _LOOK_EVERY:
        return False
    contrast = of_sessions(blocks[0], blocks[1])
    return contrast.high < 1 or contrast.low > 1 - LEAST_GAIN


Judge: TypeAlias = ByTime | ByMemory
"""What compares candidates for a goal."""
