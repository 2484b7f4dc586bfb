"""Sweeps over widths, then searches for the narrowest ones within the accuracy budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracer.accumulators.spec.accumulator import NARROWEST, Accumulator
from tracer.records.whatif import Answer, Screening, SweepRow, WidthChoice, Widths
from tracer.whatif.evaluation import Baseline
from tracer.whatif.evaluation_cache import EvaluationCache
from tracer.whatif.search import Energy, WidthSearch, pareto_front, safe_widths

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

    def searched(self, cache: EvaluationCache, baseline: Baseline) -> WidthSearch:
        """Returns the search within the budget of the score in wide accumulators."""
        return WidthSearch(
            cache,
            self.energy,
            lambda score: self.allowed(score, baseline.score),
            self.floor,
            baseline.overflow_share,
            self.explain,
        )


@dataclass(frozen=True, slots=True)
class Subset:
    """The first samples: evaluations on them, and their run in wide accumulators."""

    cache: EvaluationCache
    baseline: Baseline


def sweep_and_search(
    baseline: Baseline,
    accumulator: Accumulator,
    question: Question,
    cache: EvaluationCache,
    subset: Callable[[], Subset] | None = None,
) -> Answer:
    """Evaluates every width of the sweep, then searches A, B and C.

    With a `subset` of the data, the search for a width of each node begins on that.
    """
    rows = _rows(cache, question)
    safe = safe_widths(cache, baseline, question.floor)
    search = question.searched(cache, baseline)
    uniform = search.narrowest_uniform(safe.uniform)
    each, screened = None, None
    if question.each and uniform is not None:
        screened = None if subset is None else subset()
        each = _each(search, question, (uniform.widths, safe.widths), screened)
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


def _each(
    search: WidthSearch, question: Question, starts: Sequence[Widths], subset: Subset | None
) -> WidthChoice:
    """A width for each node, searched on the subset first if there is one."""
    if subset is not None:
        on_subset, ends = question.searched(subset.cache, subset.baseline), []
        for start in starts:
            subset.cache.begin(f"C, on {subset.baseline.samples} samples")
            ends.append(search.furthest(on_subset.descent(start)))
        starts = [min(ends, key=lambda widths: (search.energy(widths), widths))]
    search.cache.begin("C, on all samples")
    return search.narrowest_each(starts)
