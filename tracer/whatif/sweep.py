"""Sweeps over widths, and the answers: what is safe for any data, on this data, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from tracer.accumulators.spec.accumulator import NARROWEST, Accumulator
from tracer.records.trace import PartialSums
from tracer.records.whatif import Answer, Screening, SweepRow, WidthChoice, Widths
from tracer.whatif.evaluation import Evaluator
from tracer.whatif.evaluation_cache import Ledger, Store, Told
from tracer.whatif.safety import safe
from tracer.whatif.search import (
    Energy,
    descent,
    furthest,
    narrowest_each,
    narrowest_uniform,
    pareto_front,
)

SWEEPING = "evaluating"
"""What evaluations are for whose widths were asked for."""


class Allowed(Protocol):
    """Says whether a score is within the budget of that of wide accumulators."""

    def __call__(self, score: float, wide: float) -> bool:
        """True if it is."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which widths to try for the nodes that are not `pinned`, and what counts as good enough.

    `allowed` judges a score against that of wide accumulators; `better` maps a score to a number
    that grows as it gets better. `each` asks for a width for each node too. Searches try no width
    below `floor`, which is one that energies are known of.
    """

    widths: Sequence[int]
    energy: Energy
    allowed: Allowed
    better: Callable[[float], float]
    each: bool = True
    floor: int = NARROWEST
    pinned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of the data: evaluations on it, its score in wide accumulators, and its size."""

    ledger: Ledger
    score: float
    samples: int


def ask(
    evaluator: Evaluator[Any],
    accumulator: Accumulator,
    question: Question,
    store: Store | None = None,
    told: Told | None = None,
    sample: Callable[[], Sample] | None = None,
) -> Answer:
    """Try every width of the question, then search; `told` hears of each evaluation.

    Where there is a `sample` of the data, widths for each node are looked for on that first.
    """
    ledger = Ledger(evaluator.nodes, evaluator.evaluate, store, told, question.pinned)
    baseline = evaluator.baseline
    rows = _rows(ledger, question)
    needed = safe(ledger, baseline, question.floor, question.pinned)
    allowed = partial(question.allowed, wide=baseline.score)
    uniform = narrowest_uniform(ledger, question.energy, allowed, needed.uniform, question.floor)
    each, first = None, None
    if question.each and uniform is not None:
        first = None if sample is None else sample()
        starts = (uniform.widths, needed.widths)
        each = _each(ledger, question, allowed, starts, first)
    return Answer(
        accumulator=accumulator,
        score=baseline.score,
        samples=baseline.samples,
        sums=tuple(PartialSums.of(found) for found in baseline.accumulations.values()),
        rows=rows,
        guaranteed=needed.guaranteed,
        observed=needed.uniform,
        limiting=needed.limiting,
        uniform=uniform,
        each=each,
        front=tuple(pareto_front(ledger, question.energy, question.better)),
        evaluations=tuple(made for _, made in ledger),
        screening=None if first is None else Screening(first.samples, len(first.ledger)),
    )


def _rows(ledger: Ledger, question: Question) -> tuple[SweepRow, ...]:
    ledger.begin(SWEEPING, len(question.widths))
    return tuple(
        SweepRow(bits, made.score, question.energy(ledger.widths(bits)), made)
        for bits in question.widths
        for made in [ledger.uniform(bits)]
    )


def _each(
    ledger: Ledger,
    question: Question,
    allowed: Callable[[float], bool],
    starts: Sequence[Widths],
    first: Sample | None,
) -> WidthChoice:
    """A width for each node, looked for on the sample first if there is one."""
    energy = question.energy
    if first is not None:
        ends = [furthest(ledger, allowed, path) for path in _paths(first, question, starts)]
        starts = [min(ends, key=lambda widths: (energy(widths), widths))]
    ledger.begin("C, on all samples")
    return narrowest_each(ledger, energy, allowed, starts, question.floor)


def _paths(
    sample: Sample, question: Question, starts: Sequence[Widths]
) -> Iterator[Sequence[Widths]]:
    """Where a descent goes from each start, judged by a part of the data."""
    allowed = partial(question.allowed, wide=sample.score)
    for start in starts:
        sample.ledger.begin(f"C, on {sample.samples} samples")
        yield descent(sample.ledger, question.energy, allowed, start, question.floor)
