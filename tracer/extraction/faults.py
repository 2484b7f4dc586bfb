"""The faults of a case: wrong values, a crash or an error, a slower run, sums that overflow.

A fault judges a case. Once it has seen the first, it takes as the same fault only one of the same
kind: an error in the same words, or outputs that are wrong by half as many digits or clearly.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from tracer.analyzers.compare.contrast import Sample, of_turns
from tracer.errors import InputError
from tracer.extraction.cutting import Case
from tracer.extraction.runs import Observed, Runner, Side
from tracer.graph.model import Model, expanded_keys
from tracer.graph.operators import precisions
from tracer.support.tolerance import Tolerance, compare

_CLEARLY = 100.0
"""Errors of so many tolerances are no rounding."""
_ROUNDINGS = 4
"""By so many roundings inputs are changed, to see what rounding alone does."""
_LOOKS = (3, 6, 12, 24)
"""Numbers of turns after which it is asked whether a side is slower: no more than it needs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that is there: what was expected and what was seen, in words.

    `error` is that of a crash. An output `index` that is wrong has `severity`, its error ÷ what is
    `allowed`, and is odd if its type or shape is another, it has NaN or infinity on one side alone,
    or it depends on memory that nobody wrote; `expected` is its value. Of a slower run that is its
    time, and `severity` the ratio.
    """

    expects: str
    sees: str
    error: str = ""
    index: int = 0
    severity: float = 0.0
    is_odd: bool = False
    allowed: float = 0.0
    expected: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Fault(ABC):
    """Judges cases: the first of the `sides` has the fault, the second, if any, has not."""

    runner: Runner
    sides: tuple[Side, ...]
    kind: ClassVar[str]

    @abstractmethod
    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns the fault of a case, if it is there and like the `first`."""


@dataclass(frozen=True)
class Wrong(Fault):
    """An output of the first side differs from that of the second by more than the tolerance.

    Where some roundings of the inputs do the same to the second side, and where its own outputs are
    no function of the inputs, nothing is wrong.
    """

    tolerance: Tolerance
    kind = "wrong"

    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns the output that is most wrong, if it is wrong enough.

        Raises InputError if the second side computes other values each time.
        """
        ours, theirs = self.sides
        expected = self.runner.observe(case, theirs)
        seen = self.runner.observe(case, ours) if not expected.error else expected
        worst = self._worst(case, seen, expected)
        if worst is None:
            return None
        again = self.runner.observe(case, replace(theirs, is_filled=True))
        if self._worst(case, again, expected):
            if first is None:
                told = f"the model has other values in each run of {theirs.label}"
                raise InputError(told, "They are random, or a node reads what none wrote.")
            return None
        if worst.severity < _CLEARLY:
            near = self._worst(case, self.runner.observe(_rounded(case), theirs), expected)
            if near and not near.is_odd and _ROUNDINGS * near.severity > worst.severity:
                return None
        again = self.runner.observe(case, replace(ours, is_filled=True))
        if self._worst(case, again, seen):
            worst = replace(worst, is_odd=True)
        if first is None:
            return worst
        least = min(math.sqrt(first.severity), _CLEARLY)
        return worst if worst.is_odd == first.is_odd and worst.severity >= least else None

    def _worst(self, case: Case, seen: Observed, expected: Observed) -> Finding | None:
        """Returns the output that differs most; None where a run failed, or none differs."""
        if seen.error or expected.error or len(seen.outputs) != len(expected.outputs):
            return None
        found = [self._wrong(case, place, seen, expected) for place in range(len(expected.outputs))]
        return max(filter(None, found), key=lambda each: each.severity, default=None)

    def _wrong(self, case: Case, place: int, seen: Observed, expected: Observed) -> Finding | None:
        ours, theirs = seen.outputs[place], expected.outputs[place]
        names = [value.name for value in case.proto.graph.output]
        model = Model(case.proto, None, "", expanded_keys(case.proto))
        known = precisions(model, {**case.kinds, names[place]: theirs})
        precision = known.get(names[place])
        difference = compare(ours, theirs, self.tolerance, precision)
        if not difference.fault:
            return None
        error, allowed = difference.max_abs, 0.0
        is_odd = error is None or not math.isfinite(error)
        if error is not None and precision is not None:
            share = self.tolerance.share(theirs.dtype, precision)
            wide = np.abs(theirs.astype(np.float64))
            allowed = max(self.tolerance.floor(theirs.dtype), precision.steps)
            allowed += share * float(wide[np.isfinite(wide)].max(initial=0.0))
            if not is_odd and error <= allowed:  # only the RMS is too large
                allowed = error / 2
        severity = math.inf if is_odd or not allowed or error is None else error / allowed
        of = f"output {place} ({names[place]})"
        return Finding(
            f"{of} is {_brief(theirs)} in {self.sides[1].label}",
            f"it is {_brief(ours)} in {self.sides[0].label}: {difference.fault}",
            index=place, severity=severity, is_odd=is_odd, allowed=allowed, expected=theirs,
        )  # fmt: skip


def _rounded(case: Case) -> Case:
    """Returns the case with each float some roundings up or down."""
    random, arrays = np.random.default_rng(0), case.arrays
    for name, value in arrays.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            steps = (
                random.choice([-_ROUNDINGS, _ROUNDINGS], value.shape) * np.finfo(value.dtype).eps
            )
            arrays[name] = (value * (1 + steps)).astype(value.dtype)
    return case.with_arrays(arrays, {})


def _brief(value: Any) -> str:
    """Returns the first numbers of a value, and its shape."""
    flat = np.ravel(value)
    return f"{flat[:4]}{' …' if flat.size > 4 else ''} of shape {np.shape(value)}"


@dataclass(frozen=True)
class Crash(Fault):
    """The first side dies, or fails; where the second did not fail at first, it never does."""

    kind = "crash"

    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns the error; like the first one it is the same signal, or has the same words."""
        seen = self.runner.observe(case, self.sides[0], has_outputs=False)
        if not seen.error or seen.lacks_memory or (first and seen.error != first.error):
            return None
        expects = "it runs" if first is None else first.expects
        if expects == "it runs":
            other = self.runner.observe(case, self.sides[1], has_outputs=False)
            if other.error and (first or other.lacks_memory):
                return None
            if other.error:
                told = f"({self.sides[1].label} fails too: the model or its inputs may be invalid)"
                expects = f"no failure {'' if seen.error.startswith('SIG') else told}".strip()
        how = f"{'dies' if seen.error.startswith('SIG') else 'fails'}: {seen.error}"
        return Finding(expects, f"{self.sides[0].label} {how}", error=seen.error)


@dataclass(frozen=True)
class Slower(Fault):
    """The first side takes longer than the second by more than the share `by`."""

    by: float
    kind = "slower"

    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns the ratio, if its interval lies above what is allowed, as compare computes it."""
        logs, level, most = list[float](), math.nan, 1 + self.by
        if first is not None:  # without the other nodes, the slow one is no less of the time
            most = max(most, math.sqrt(first.severity))
        while len(logs) < _LOOKS[-1]:
            turns = [
                self.runner.observe(case, side, is_timed=True, has_outputs=False)
                for side in self.sides
            ]
            if any(turn.error for turn in turns):
                return None
            logs.append(math.log(turns[0].us / turns[1].us))
            if len(logs) not in _LOOKS:
                continue
            level = turns[1].us
            unknown = Sample(math.nan, math.nan, 0)
            ratio = of_turns(np.array(logs), Sample(level, math.nan, 0), unknown)
            if ratio.low > most:
                break
            if ratio.ratio <= most or len(logs) == _LOOKS[-1]:
                return None
        return Finding(
            f"{' ÷ '.join(side.label for side in self.sides)} is {most:.3g} at most",
            f"it is {ratio.ratio:.3g} ({ratio.low:.3g} to {ratio.high:.3g})",
            severity=ratio.ratio,
            allowed=most,
            expected=level,
        )


@dataclass(frozen=True)
class Overflow(Fault):
    """Sums of the side, the interpreter, leave an accumulator."""

    kind = "overflow"

    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns how many sums overflow."""
        seen = self.runner.observe(case, self.sides[0])
        if seen.error or not seen.overflows:
            return None
        own = self.sides[0].accumulator
        return Finding(f"all sums fit accumulator {own}", f"sums that overflow: {seen.overflows:,}")
