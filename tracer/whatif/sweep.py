"""Sweeps over widths, then searches for the narrowest ones within the accuracy budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracer.accumulators.spec.accumulator import NARROWEST, Accumulator
from tracer.records.whatif import Answer, Screening, SweepRow
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
    """The samples that narrow accumulators endanger most: evaluations, and the wide run."""

    cache: EvaluationCache
    baseline: Baseline

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
    screen: Callable[[], Screen] | None = None,
) -> Answer:
    """Evaluates every width of the sweep, then searches A, B and C.

    With a `screen`, C is searched on its samples first.
    """
    rows = _rows(cache, question)
    safe = safe_widths(cache, baseline, question.floor)
    search = question.search(cache, baseline)
    uniform = search.narrowest_uniform(safe.uniform)
    each, screened, judge = None, None, None
    if question.each and uniform is not None:
        if screen is not None:
            screened = screen()
            judge = screened.judge(question, baseline)
            screened.cache.begin(f"C, on {screened.baseline.samples} samples")
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
    )


def _rows(cache: EvaluationCache, question: Question) -> tuple[SweepRow, ...]:
    cache.begin(SWEEPING, len(question.widths))
    return tuple(
        SweepRow(bits, evaluation.score, question.energy(cache.uniform_widths(bits)), evaluation)
        for bits in question.widths
        for evaluation in [cache.uniform(bits)]
    )
