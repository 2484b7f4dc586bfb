"""What is better: less time, shown by turns side by side, or less memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from tracer.analyzers.compare.contrast import Contrast, of_sessions
from tracer.tuning.bench import Bench, Blocks
from tracer.tuning.candidates import Candidate
from tracer.tuning.setup import Setup

LEAST_GAIN = 0.01
"""A change that gains less, as a share, is not worth a line of code."""
_LEAST_SAVED = 0.02
"""The same for memory, which pages and threads make uneven by about one percent."""
_LOOK_EVERY, _MOST_SESSIONS = 8, 40
"""Sessions between two looks at the interval, and after which more tell little."""


class Judge(Protocol):
    """Compares candidates for a goal."""

    def rank(self, candidate: Candidate) -> float:
        """Returns a number that is lower for a better candidate, below 1 for one that may help."""

    def improves(self, current: Setup, trial: Setup, seconds: float) -> bool:
        """Returns whether `trial` is shown to be better than `current`."""

    def spare(self, full: Setup, without: Sequence[Setup], seconds: float) -> int | None:
        """Returns which of `without` is not shown to be worse than `full`, if any is not."""


class ByTime:
    """Judges by the time of a sample."""

    def __init__(self, bench: Bench) -> None:
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
        return contrast.high < 1 and contrast.ratio <= 1 - LEAST_GAIN

    def spare(self, full: Setup, without: Sequence[Setup], seconds: float) -> int | None:
        """Returns the setup that is nearest to `full`, unless all are slower.

        These turns are fresh, so a step that was added by chance shows no gain here. The number of
        sessions does not depend on what they show.
        """
        first, *others = self._bench.race([full, *without], seconds, _is_most)
        contrasts = [of_sessions(first, other) for other in others]
        spare = [i for i, c in enumerate(contrasts) if not _is_needed(c)]
        return min(spare, key=lambda i: contrasts[i].ratio, default=None)


class ByMemory:
    """Judges by the memory that a session takes at most."""

    def __init__(self, bench: Bench, before: int) -> None:
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


def _is_needed(contrast: Contrast) -> bool:
    """Returns whether to leave a step out is slower, by one percent or shown to be slower at all.

    Too little time makes an interval wide, which is no reason to drop what was shown to help.
    """
    return contrast.ratio >= 1 + LEAST_GAIN or (
        contrast.low > 1 and contrast.ratio >= 1 + LEAST_GAIN / 2
    )


def _is_decided(blocks: Sequence[Blocks]) -> bool:
    """Returns whether the interval tells, at every eighth session, which of two sides is faster."""
    count = len(blocks[0])
    if count >= _MOST_SESSIONS:
        return True
    if count % _LOOK_EVERY:
        return False
    contrast = of_sessions(blocks[0], blocks[1])
    return contrast.high < 1 or contrast.low > 1 - LEAST_GAIN


def _is_most(blocks: Sequence[Blocks]) -> bool:
    return len(blocks[0]) >= _MOST_SESSIONS // 2
