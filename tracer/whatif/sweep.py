"""Sweeps over widths, and the answers: what is safe for any data, on this data, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracer.interpreter.arithmetic.accumulator import NARROWEST, Accumulator
from tracer.interpreter.arithmetic.narrow import Accumulation
from tracer.trace import PartialSums
from tracer.whatif.evaluation import Baseline, Evaluation, Evaluator
from tracer.whatif.ledger import Ledger, Store
from tracer.whatif.search import (
    Choice,
    Energy,
    Point,
    narrowest_each,
    narrowest_uniform,
    pareto_front,
)


@dataclass(frozen=True, slots=True)
class Question:
    """Which widths to try, and what counts as good enough.

    `allowed` judges a score against that of wide accumulators; `better` maps a score to a number
    that grows as it gets better. `each` asks for a width for each node too. Searches try no width
    below `floor`, which is one that energies are known of.
    """

    widths: Sequence[int]
    energy: Energy
    allowed: Callable[[float, float], bool]
    better: Callable[[float], float]
    each: bool = True
    floor: int = NARROWEST


@dataclass(frozen=True, slots=True)
class Row:
    """One width for all nodes."""

    bits: int
    score: float
    energy: float
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question, for one kind of accumulator.

    `sums` are the partial sums of the nodes in wide accumulators. `guaranteed` bits are safe for
    any input, `observed` bits on this data, where `limiting` is the node that needs them. `uniform`
    and `each` are the narrowest within the budget: one width for all nodes, None if no width is,
    and a width for each. `evaluations` are all that were made, in their order.
    """

    accumulator: Accumulator
    score: float
    samples: int
    sums: tuple[PartialSums, ...] = field(repr=False)
    rows: tuple[Row, ...]
    guaranteed: int
    observed: int
    limiting: str
    uniform: Choice | None
    each: Choice | None
    front: tuple[Point, ...]
    evaluations: tuple[Evaluation, ...] = field(repr=False)


def ask(
    evaluator: Evaluator[Any],
    accumulator: Accumulator,
    question: Question,
    store: Store | None = None,
    told: Callable[[], None] | None = None,
) -> Answer:
    """Try every width of the question, then search; `told` is called after each evaluation."""
    ledger = Ledger(evaluator.nodes, evaluator.evaluate, store, told)
    baseline = evaluator.baseline
    count = len(ledger.nodes)
    rows = tuple(
        Row(bits, made.score, question.energy((bits,) * count), made)
        for bits in question.widths
        for made in [ledger.uniform(bits)]
    )
    observed = {key: _observed(found) for key, found in baseline.accumulations.items()}
    limiting = max(observed, key=lambda key: observed[key])
    uniform, each = _narrowest(ledger, question, baseline, observed)
    return Answer(
        accumulator=accumulator,
        score=baseline.score,
        samples=baseline.samples,
        sums=tuple(PartialSums.of(found) for found in baseline.accumulations.values()),
        rows=rows,
        guaranteed=max(found.guaranteed for found in baseline.accumulations.values()),
        observed=max(observed[limiting], question.floor),
        limiting=limiting,
        uniform=uniform,
        each=each,
        front=tuple(pareto_front(ledger, question.energy, question.better)),
        evaluations=tuple(made for _, made in ledger),
    )


def _narrowest(
    ledger: Ledger, question: Question, baseline: Baseline, observed: Mapping[str, int]
) -> tuple[Choice | None, Choice | None]:
    """One width for all within the budget, and one for each node."""

    def allowed(score: float) -> bool:
        return question.allowed(score, baseline.score)

    floor = question.floor
    safe = tuple(max(observed.get(key, floor), floor) for key in ledger.nodes)
    uniform = narrowest_uniform(ledger, question.energy, allowed, max(safe), floor)
    if not question.each or uniform is None:
        return uniform, None
    starts = (uniform.widths, safe)
    return uniform, narrowest_each(ledger, question.energy, allowed, starts, floor)


def _observed(found: Accumulation) -> int:
    return int(found.tally.bits_observed.max())
