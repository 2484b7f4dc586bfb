"""Every combination of graphs, accumulators and pins, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.energy import EnergyModel
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.inputs.datasets import Dataset
from tracer.limits import Limits
from tracer.metrics import Metric
from tracer.records.whatif import Variant
from tracer.storage.whatif_file import WhatIfFile
from tracer.support.progress import Progress, silent
from tracer.whatif import energy_cost
from tracer.whatif.batches import Batches
from tracer.whatif.graph_variants import Graph
from tracer.whatif.options import Options
from tracer.whatif.sweep import SWEEPING
from tracer.whatif.variant import Bench, Watched
from tracer.whatif.widths import Plan

_SLACK = 1e-9
"""Of a budget: 98.3 - 97.3 is a little more than 1 in floats."""


@dataclass(frozen=True, slots=True)
class Task:
    """The data, what outputs are judged and priced by, and what was asked."""

    dataset: Dataset
    metric: Metric
    energy: EnergyModel
    options: Options
    plan: Plan
    threads: int
    limits: Limits | None

    @property
    def widths(self) -> tuple[int, ...]:
        """Those that the table has a row for."""
        return self.plan.swept.value

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
        usual = energy_cost.CHANNELWISE if made == energy_cost.CHANNELWISE else energy_cost.PLAIN
        return self.options.counting or usual


@dataclass(frozen=True, slots=True)
class Explored:
    """A variant for each combination, what to know, and how additions were counted."""

    variants: tuple[Variant, ...]
    notes: tuple[str, ...]
    convention: str


class _Told:
    """Reports widths over all variants, and what else is evaluated for one after the other."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._report = progress or silent
        self._done, self._total = 0, total

    def __call__(self, what: str, done: int, total: int) -> None:
        """One more evaluation is made, for `what`."""
        if what == SWEEPING:
            self._done += 1
            done, total = self._done, self._total
        self._report(done, total, what)


def explore(
    task: Task,
    graphs: Sequence[Graph],
    kinds: Sequence[Accumulator],
    journal: WhatIfFile | None,
    progress: Progress | None,
) -> Explored:
    """An answer for each graph, kind of accumulator and pins. Raises what `Bench` raises."""
    pins = [list(task.plan.pins(graph.model.nodes)) for graph in graphs]
    passes = sum(1 + len(each) * len(task.widths) for each in pins) * len(kinds)
    told = _Told(progress, passes)
    samples = task.dataset.samples or 0
    batches = Batches(task.dataset, task.options.batch)
    data = Watched(batches, -(-samples // task.options.batch), progress)
    variants: list[Variant] = []
    notes: list[str] = []
    for graph, pinned in zip(graphs, pins, strict=True):
        for kind in kinds:
            bench = Bench(task, graph, kind, data, journal, told, progress)
            told(SWEEPING, 1, 0)  # the pass in wide accumulators
            variants += [bench.variant(each) for each in pinned]
            notes += bench.notes
    conventions = dict.fromkeys(task.convention(kind) for kind in kinds)
    return Explored(tuple(variants), tuple(notes), ", ".join(conventions))
