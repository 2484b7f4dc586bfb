"""Every combination of graphs and accumulators, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracer.errors import InputError
from tracer.exploring import identity, judging, pricing
from tracer.interpreter.arithmetic.accumulator import NARROWEST, Accumulator
from tracer.interpreter.arithmetic.policy_text import policy
from tracer.whatif.batches import Batches
from tracer.whatif.evaluation import Evaluator
from tracer.whatif.journal import Page
from tracer.whatif.result import Variant
from tracer.whatif.sweep import Answer, Question, ask

if TYPE_CHECKING:
    from analyzers.energy import EnergyModel
    from tracer.api import Progress
    from tracer.exploring.graphs import Graph
    from tracer.exploring.pricing import Prices
    from tracer.inputs.datasets import Dataset
    from tracer.limits import Limits
    from tracer.metrics import Metric
    from tracer.whatif.journal import Journal
    from tracer.whatif.options import Options

USUAL = 32
"""Bits that energy is compared with: what integer sums are made in where nobody asks."""

_SLACK = 1e-9
"""Of a budget: 98.3 - 97.3 is a little more than 1 in floats."""


@dataclass(frozen=True, slots=True)
class Task:
    """The data, what outputs are judged and priced by, and what was asked."""

    dataset: Dataset
    metric: Metric
    energy: EnergyModel
    options: Options
    widths: tuple[int, ...]
    threads: int
    limits: Limits | None

    def allowed(self, score: float, wide: float) -> bool:
        """Whether a score is within the budget of that of wide accumulators."""
        lost = wide - score if self.metric.higher_is_better else score - wide
        return lost <= self.options.budget + _SLACK

    def better(self, score: float) -> float:
        """A number that grows as the score gets better."""
        return score if self.metric.higher_is_better else -score

    def convention(self, accumulator: Accumulator) -> str:
        """How additions are counted: as asked, or as the accumulator makes them."""
        made = str(accumulator.order)
        usual = pricing.CHANNELWISE if made == pricing.CHANNELWISE else pricing.PLAIN
        return self.options.counting or usual


@dataclass(frozen=True, slots=True)
class Explored:
    """A variant for each combination, what to know, and how additions were counted."""

    variants: tuple[Variant, ...]
    notes: tuple[str, ...]
    convention: str


class _Told:
    """Passes over the data that are done, out of those known to come."""

    def __init__(self, progress: Progress | None, variants: int, each: int) -> None:
        self._report = progress or (lambda done, total, what: None)
        self._done, self._total, self._each = 0, variants * each, each
        self._left = 0

    def begin(self) -> None:
        """A variant begins; what comes after its `each` passes is a search."""
        self._left = self._each

    def __call__(self) -> None:
        """One more pass is done."""
        self._done += 1
        self._total += self._left == 0
        self._left -= self._left > 0
        self._report(self._done, self._total, "evaluating")


def explore(
    task: Task,
    graphs: Sequence[Graph],
    kinds: Sequence[Accumulator],
    journal: Journal | None,
    progress: Progress | None,
) -> Explored:
    """An answer for each graph under each kind of accumulator. Raises what `Evaluator` raises."""
    batches = Batches(task.dataset, task.options.batch)
    told = _Told(progress, len(graphs) * len(kinds), len(task.widths) + 1)
    variants: list[Variant] = []
    notes: list[str] = []
    for graph in graphs:
        for kind in kinds:
            told.begin()
            made, more = _variant(task, graph, kind, batches, journal, told, progress)
            variants.append(made)
            notes += more
    conventions = dict.fromkeys(task.convention(kind) for kind in kinds)
    return Explored(tuple(variants), tuple(notes), ", ".join(conventions))


def _variant(
    task: Task,
    graph: Graph,
    kind: Accumulator,
    batches: Batches,
    journal: Journal | None,
    told: _Told,
    progress: Progress | None,
) -> tuple[Variant, tuple[str, ...]]:
    evaluator = Evaluator(
        graph.model,
        policy(kind, task.options.fixed),
        batches,
        judging.scoring(graph.model, task.dataset, task.metric),
        limits=task.limits,
        threads=task.threads or None,
        progress=progress,
    )
    told()
    priced = pricing.prices(
        graph.model, task.dataset, evaluator.nodes, task.energy, task.convention(kind)
    )
    floor = _floor(task, priced)
    observed = max(int(evaluator.baseline.needed.max()), floor)
    priced.table((*task.widths, USUAL, observed))  # what a table lacks is told before the work
    question = Question(task.widths, priced, task.allowed, task.better, task.options.search, floor)
    found = ask(evaluator, kind, question, _page(journal, graph, kind), told)
    made = Variant(
        weight_bits=graph.weight_bits,
        activation_bits=graph.activation_bits,
        answer=found,
        work=pricing.described(graph.model, priced),
        energies=priced.table(_of_interest(task, found)),
    )
    return made, (*evaluator.notes, *priced.notes)


def _page(journal: Journal | None, graph: Graph, kind: Accumulator) -> Page | None:
    return None if journal is None else Page(journal, identity.variant(graph, kind))


def _floor(task: Task, priced: Prices) -> int:
    """The least width to look at: of all, or, where its energy is not known, of those asked for."""
    try:
        priced.table([NARROWEST])
    except InputError:
        return task.widths[0]
    return NARROWEST


def _of_interest(task: Task, found: Answer) -> set[int]:
    """Widths whose energies are told: those that were tried, and those to compare with."""
    tried = {bits for made in found.evaluations for bits in made.bits.values()}
    return {*task.widths, *tried, USUAL, found.observed}
