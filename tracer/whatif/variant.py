"""One graph under one kind of accumulator: its evaluations, and an answer for each of the pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tracer.accumulators.spec.accumulator import NARROWEST, Accumulator
from tracer.accumulators.spec.policy_text import policy
from tracer.errors import InputError, UsageError
from tracer.records.whatif import Answer, Pins, Variant
from tracer.storage.whatif_file import WhatIfFile
from tracer.support.progress import Progress, silent
from tracer.whatif import cache_key, energy_cost, scoring
from tracer.whatif.batches import Batches, Fed
from tracer.whatif.evaluation import Evaluator
from tracer.whatif.evaluation_cache import Ledger, Page, Told
from tracer.whatif.graph_variants import Graph
from tracer.whatif.sweep import Question, Sample, ask

if TYPE_CHECKING:
    from tracer.whatif.task import Task

USUAL = 32
"""Bits that energy is compared with: what integer sums are made in where nobody asks."""

_SAMPLED, _WORTHWHILE = 8, 4
"""A search for a width of each node looks at an eighth of the samples first, or at one batch;
not at more than a quarter."""


class Watched:
    """The batches of all passes over the data, each told as it is done with."""

    def __init__(self, batches: Batches, count: int, progress: Progress | None) -> None:
        self._batches = batches
        self._count = count
        self._report = progress or silent

    def __call__(self) -> Iterator[Fed]:
        """The batches of one pass."""
        for done, batch in enumerate(self._batches(), 1):
            yield batch
            self._report(done, self._count, "batches")


class Bench:
    """Evaluations of `graph` in accumulators like `kind`. Raises what `Evaluator` raises."""

    def __init__(
        self,
        task: Task,
        graph: Graph,
        kind: Accumulator,
        data: Watched,
        journal: WhatIfFile | None,
        told: Told,
        progress: Progress | None,
    ) -> None:
        self._task = task
        self._graph = graph
        self._kind = kind
        self._journal = journal
        self._told = told
        self._progress = progress
        self._evaluator = self._evaluating(data)
        self._sampled: Evaluator[Fed] | None = None
        nodes, convention = self._evaluator.nodes, task.convention(kind)
        self._priced = energy_cost.prices(graph.model, task.dataset, nodes, task.energy, convention)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the nodes and their prices."""
        return (*self._evaluator.notes, *self._priced.notes)

    def variant(self, pins: Pins) -> Variant:
        """The answer with some nodes pinned. Raises UsageError where that leaves none."""
        task, priced = self._task, self._priced
        pins = pins.among(self._evaluator.nodes)
        if len(pins.bits) == len(self._evaluator.nodes):
            raise UsageError(
                f"'{task.plan.swept.text}' is left with no node: {pins.text} names them all",
                f"The nodes are {', '.join(self._evaluator.nodes)}.",
            )
        floor = self._floor()
        # what a table of energies lacks is told before the work
        known = max(int(self._evaluator.baseline.needed.max()), floor)
        priced.table((*task.widths, *pins.bits.values(), USUAL, known))
        question = Question(task.widths, priced, task.allowed, task.better, task.options.search,
                            floor, pins.bits)  # fmt: skip
        page = self._page()
        found = ask(self._evaluator, self._kind, question, page, self._told, self._sample(pins))
        return Variant(
            weight_bits=self._graph.weight_bits,
            activation_bits=self._graph.activation_bits,
            pinned=pins,
            answer=found,
            work=energy_cost.described(self._graph.model, priced),
            energies=priced.table(self._of_interest(found)),
        )

    def _evaluating(self, data: Callable[[], Iterator[Fed]]) -> Evaluator[Fed]:
        model, task = self._graph.model, self._task
        return Evaluator(
            model,
            policy(task.plan.policy(self._kind), task.options.fixed),
            data,
            scoring.scoring(model, task.dataset, task.metric),
            limits=task.limits,
            threads=task.threads or None,
            progress=self._progress,
        )

    def _sample(self, pins: Pins) -> Callable[[], Sample] | None:
        """The first of the samples, where they are few of all."""
        batch, samples = self._task.options.batch, self._evaluator.baseline.samples
        few = max(batch, samples // _SAMPLED)
        if few > samples // _WORTHWHILE:
            return None

        def sample() -> Sample:
            if self._sampled is None:
                data = replace(self._task.dataset, limit=few)
                self._sampled = self._evaluating(Batches(data, batch))
            made, page = self._sampled, self._page(few)
            ledger = Ledger(made.nodes, made.evaluate, page, self._told, pins.bits)
            return Sample(ledger, made.baseline.score, made.baseline.samples)

        return sample

    def _page(self, samples: int | None = None) -> Page | None:
        if self._journal is None:
            return None
        return Page(self._journal, cache_key.variant(self._graph, self._kind, samples))

    def _floor(self) -> int:
        """The least width to look at: of all, or, where energy is unknown, of those asked for."""
        try:
            self._priced.table([NARROWEST])
        except InputError:
            return self._task.widths[0]
        return NARROWEST

    def _of_interest(self, found: Answer) -> set[int]:
        """Widths whose energies are told: those that were tried, and those to compare with."""
        tried = {bits for made in found.evaluations for bits in made.bits.values()}
        return {*self._task.widths, *tried, USUAL, found.observed}
