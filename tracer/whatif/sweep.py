"""Sweeps over widths, then searches for the narrowest ones within the accuracy budget."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.register import NARROWEST
from tracer.records.whatif import Answer, Screening, SweepRow
from tracer.whatif.deadline import Deadline, OutOfTimeError
from tracer.whatif.descent import Energy
from tracer.whatif.evaluation import Baseline
from tracer.whatif.evaluation_cache import EvaluationCache
from tracer.whatif.search import Judge, WidthSearch, pareto_front, safe_widths

SWEEPING = "evaluating"
"""The purpose, in progress, of the evaluations of a sweep."""


@dataclass(frozen=True, slots=True)
class Question:
    """The widths of the sweep, and what the searches minimise within which budget.

    `allowed` says whether a score is within the budget of a score in wide accumulators. `better`
    maps a score to a number that grows as the score gets better. `each` also searches a width for
    each node. Searches try no width below `floor`. `explain` makes the evaluations that name the
    node which limits a choice.
    """

    widths: Sequence[int]
    energy: Energy
    allowed: Callable[[float, float], bool]
    better: Callable[[float], float]
    each: bool = True
    floor: int = NARROWEST
    explain: bool = False

    def search(self, cache: EvaluationCache, baseline: Baseline) -> WidthSearch:
        """Returns the search within the budget of the score in wide accumulators."""
        judge = Judge(cache, lambda score: self.allowed(score, baseline.score))
        return WidthSearch(
            judge,
            self.energy,
            self.floor,
            lambda node, bits: baseline.overflow_share(cache.nodes[node], bits),
            self.explain,
        )


@dataclass(frozen=True, slots=True)
class Screen:
    """The samples that narrow accumulators endanger most: evaluations, and the wide run.

    Its evaluations have a deadline of their own, which leaves time for all samples.
    """

    cache: EvaluationCache
    baseline: Baseline
    deadline: Deadline

    def judge(self, question: Question, everywhere: Baseline) -> Judge:
        """Judges by these samples, as if all others kept their scores in wide accumulators."""
        share = self.baseline.samples / everywhere.samples

        def allowed(score: float) -> bool:
            change = (score - self.baseline.score) * share
            return question.allowed(everywhere.score + change, everywhere.score)

        return Judge(self.cache, allowed)


def sweep_and_search(
    baseline: Baseline,
    accumulator: Accumulator,
    question: Question,
    cache: EvaluationCache,
    deadline: Deadline,
    screen: Callable[[], Screen] | None = None,
) -> Answer:
    """Evaluates every width of the sweep, then searches A, B and C.

    With a `screen`, C is searched on its samples first. At the `deadline` the answer is what was
    found until then. Raises OutOfTimeError where that is nothing.
    """
    rows = _rows(cache, question)
    safe = safe_widths(cache, baseline, question.floor)
    rows = rows or (_row(cache, question, safe.uniform),)
    search = question.search(cache, baseline)
    uniform = search.narrowest_uniform(safe.uniform)
    each, screened = None, None
    if question.each and uniform is not None:
        with suppress(OutOfTimeError):
            screened = None if screen is None else _begun(screen, deadline)
            judge = None if screened is None else screened.judge(question, baseline)
            each = search.narrowest_each(safe.widths, uniform.widths, judge)
    return Answer(
        accumulator=accumulator,
        score=baseline.score,
        samples=baseline.samples,
        sums=tuple(baseline.accumulations.values()),
        rows=rows,
        guaranteed=safe.guaranteed,
        observed=safe.uniform,
        limiting=safe.limiting,
        uniform=uniform,
        each=each,
        front=tuple(pareto_front(cache, question.energy, question.better)),
        evaluations=tuple(evaluation for _, evaluation in cache),
        screening=None
        if screened is None
        else Screening(screened.baseline.samples, len(screened.cache)),
        ended=deadline.ended or (screened.deadline.ended if screened else ""),
    )


def _begun(screen: Callable[[], Screen], deadline: Deadline) -> Screen:
    deadline.check()
    with deadline.reached():
        screened = screen()
    screened.cache.begin(f"C, on {screened.baseline.samples} samples")
    return screened


def _rows(cache: EvaluationCache, question: Question) -> tuple[SweepRow, ...]:
    """The rows of the sweep, the widest evaluated first: without time, the narrowest are left out.

    B is searched downwards, so it finds evaluations of these widths.
    """
    cache.begin(SWEEPING, len(question.widths))
    rows: list[SweepRow] = []
    downwards = sorted(question.widths, reverse=True)
    cache.expect([cache.uniform_widths(bits) for bits in downwards], counted=True)
    with suppress(OutOfTimeError):
        for bits in downwards:
            rows.append(_row(cache, question, bits))
    return tuple(sorted(rows, key=lambda row: question.widths.index(row.bits)))


def _row(cache: EvaluationCache, question: Question, bits: int) -> SweepRow:
    evaluation, widths = cache.uniform(bits), cache.uniform_widths(bits)
    return SweepRow(bits, evaluation.score, question.energy(widths), evaluation)
