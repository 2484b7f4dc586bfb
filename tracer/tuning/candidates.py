"""The setups that are tried: made once, and their outputs compared with the unchanged model's."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer.analyzers.compare.contrast import Contrast, of_sessions
from tracer.errors import TracerError, UsageError
from tracer.support.progress import Progress
from tracer.support.tolerance import Difference, Tolerance, compare, worst
from tracer.tuning import cost
from tracer.tuning.bench import Bench, Blocks
from tracer.tuning.changes import ALLOWED, Step, Steps, changes, find
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

DEFAULT_RTOL = 1e-3
"""Error of an output ÷ its largest value that is no change of results: another order of float sums
stays below, floats of 16 bits and integers do not."""
Left = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Request:
    """What a search may do: `goal`, effects that are allowed beside rounding, names of changes.

    `only` are the changes to try, all of them if empty.
    """

    goal: str = "latency"
    seconds: float = 120.0
    allow: frozenset[str] = frozenset()
    tolerance: Tolerance = Tolerance(relative=DEFAULT_RTOL)  # noqa: RUF009 - it is frozen
    only: tuple[str, ...] = ()

    def allows(self, effect: str) -> bool:
        """Whether a change with this effect may be tried."""
        return effect in ALLOWED or effect in self.allow


@dataclass(eq=False)
class Candidate:
    """Steps whose setup was made; `fault` says why it is not measured, '' if it is.

    `first` and `own` are the times of the unchanged setup and of this one, from all turns that both
    took.
    """

    steps: Steps
    why: str = ""
    setup: Setup | None = None
    fault: str = ""
    difference: float | None = None
    memory: int | None = None
    first: Blocks = field(default_factory=list, repr=False)
    own: Blocks = field(default_factory=list, repr=False)

    def add(self, first: Blocks, own: Blocks) -> None:
        """Adds sessions that it shared with the unchanged setup."""
        self.first += first
        self.own += own

    @property
    def contrast(self) -> Contrast:
        """Its time ÷ that of the unchanged setup."""
        return of_sessions(self.first, self.own) if len(self.own) > 1 else Contrast()


def wanted(findings: Findings, request: Request) -> list[Candidate]:
    """Returns a candidate for each form of each change that applies, not made yet.

    One whose effect is not allowed has the fault that says so. Raises UsageError for an unknown
    change in the request.
    """
    chosen = {find(name).name for name in request.only} or {c.name for c in changes()}
    candidates = []
    for change in changes():
        if change.name not in chosen or request.goal not in change.goals:
            continue
        why = change.applies(findings)
        if why is None:
            continue
        fault = "" if request.allows(change.effect) else (
            f"needs --allow {change.effect}"
        )  # fmt: skip
        steps = [Step(change, value) for value in change.values(findings)]
        candidates += [Candidate((step,), why, fault=fault) for step in steps]
    return candidates


class Workshop:
    """Makes the setups of steps, and compares their outputs with those of the unchanged one."""

    def __init__(self, base: Setup, request: Request, bench: Bench) -> None:
        self._made: dict[tuple[str, ...], Setup] = {(): base}
        self._request, self._bench = request, bench
        self._reference = bench.outputs(base)

    def make(self, candidate: Candidate) -> None:
        """Makes the setup of a candidate; its fault says what is wrong, if anything is."""
        if candidate.fault:
            return
        try:
            setup = self.setup(candidate.steps)
            outputs = self._bench.outputs(setup)
        except TracerError as error:
            candidate.fault = f"failed: {error.what}"
            return
        candidate.setup = setup
        found = self._difference(outputs, setup.samples)
        candidate.difference = found.max_share
        if found.fault and self._is_strict(candidate.steps):
            candidate.fault = f"changes results: {found.fault}"

    def make_each(
        self, candidates: Sequence[Candidate], progress: Progress, left: Left = lambda: math.inf
    ) -> None:
        """Makes the setups of candidates within the seconds that are `left`.

        One that is like an earlier one has a fault, and one that would take longer than is left.
        """
        earlier: dict[tuple[str, str, int], Candidate] = {}
        for index, candidate in enumerate(candidates):
            progress(index, len(candidates), f"making {candidate.steps[0]}")
            self._refuse_long(candidate, left())
            self.make(candidate)
            if candidate.setup is None or candidate.fault:
                continue
            first = earlier.setdefault(candidate.setup.likeness, candidate)
            if first is not candidate:
                candidate.fault = f"the same as {first.steps[0]}"

    def _refuse_long(self, candidate: Candidate, left: float) -> None:
        """Sets the fault of a candidate that would take longer to make than is left."""
        if candidate.fault:
            return
        try:
            needed = cost.seconds(self.setup(()), candidate.steps[0])
        except TracerError as error:
            candidate.fault = f"failed: {error.what}"
            return
        if not left:
            candidate.fault = "no time was left to make it: raise --max-seconds"
        elif needed > left:
            candidate.fault = (
                f"making it takes about {needed:,.0f} s, and {left:,.0f} s are left: "
                "raise --max-seconds"
            )

    def setup(self, steps: Sequence[Step]) -> Setup:
        """Returns the setup with all of these steps, in order. Raises the errors of a change."""
        names = tuple(map(str, steps))
        if names not in self._made:
            *before, last = steps
            self._made[names] = last.apply(self.setup(before))
        return self._made[names]

    def _is_strict(self, steps: Collection[Step]) -> bool:
        """Returns whether no step is allowed to change results."""
        return not any(step.change.effect in self._request.allow for step in steps)

    def _difference(self, outputs: Sequence[Any], samples: int) -> Difference:
        pairs = zip(outputs, self._reference, strict=True)
        return worst([compare(_first(a, b, samples), b, self._request.tolerance) for a, b in pairs])


def _first(output: Any, reference: Any, samples: int) -> Any:
    """Returns the part of an output that belongs to the first of several copies of the inputs."""
    if samples == 1 or not isinstance(output, np.ndarray) or output.shape == reference.shape:
        return output
    return output[: len(reference)]


def refuse_unknown(names: Collection[str]) -> None:
    """Raises UsageError for an effect that cannot be allowed."""
    effects = {change.effect for change in changes()} - set(ALLOWED)
    unknown = set(names) - effects
    if unknown:
        raise UsageError(
            f"--allow {', '.join(sorted(unknown))}: no change has this effect",
            f"Allow {', '.join(sorted(effects))}.",
        )
