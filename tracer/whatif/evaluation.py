"""How well a network does on data at given widths, without computing anything twice.

A run in narrow accumulators is the run in wide ones until the first partial sum that leaves the
range. So one run over the data that looks at the exact partial sums tells which batches nothing
changes for, whatever the widths; the others go on from the first node that overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Generic, Protocol, TypeVar

import numpy as np

from tracer.accumulators.engine.overflow_counter import Counts, OverflowCounter
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.narrowed_model import Accumulation, Narrowing
from tracer.accumulators.spec.accumulator import NARROWEST
from tracer.accumulators.spec.policy import Policy
from tracer.graph.model import Model, Node
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel
from tracer.interpreter.values import Value
from tracer.limits import Limits
from tracer.records.whatif import Evaluation, NodeOverflows
from tracer.support.progress import Progress
from tracer.support.types import Array
from tracer.whatif.checkpoints import Checkpoints
from tracer.whatif.concurrent import in_order
from tracer.whatif.spill import Spill


class Batch(Protocol):
    """Samples that are fed at a time."""

    @property
    def inputs(self) -> Mapping[str, Value]:
        """Arrays by input name."""


B = TypeVar("B", bound=Batch)
T = TypeVar("T")
R = TypeVar("R")
Scoring = Callable[[Sequence[Value], B, Sequence[Value]], Array]
"""Scores (n,) of the samples of a batch: of its outputs, given those of wide accumulators."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The run with accumulators that hold everything: the score, and what was seen of each node.

    `needed` (batches, nodes), int64, are the widths that hold all partial sums of a batch.
    """

    score: float
    samples: int
    needed: Array
    accumulations: Mapping[str, Accumulation]


class Evaluator(Generic[B]):
    """A model, a policy for its accumulators, and data to score it on.

    `data` gives the same batches whenever it is called. `memory` bounds the bytes of values kept
    between runs. Raises what `Narrowing` and `Interpreter` raise.
    """

    def __init__(
        self,
        model: Model,
        policy: Policy,
        data: Callable[[], Iterable[B]],
        scoring: Scoring[B],
        *,
        memory: int = 1 << 28,
        limits: Limits | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._narrowing = Narrowing(model, policy)
        self._interpreter = Interpreter(
            model, around=self._narrowing.kernel, limits=limits, threads=threads, progress=progress
        )
        self._threads = threads
        self._data = data
        self._scoring = scoring
        self._kept = Checkpoints(memory)
        self._wide = Spill()
        self._given = {key: meter.accumulator for key, meter in self._narrowing.meters.items()}
        self._steps = _steps(self._interpreter.steps, model, self._given)
        self._scores: list[Array] = []
        self.notes = self._narrowing.notes
        self.baseline = self._measured()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The narrow nodes in the order of the model."""
        return tuple(self._given)

    def evaluate(self, bits: Mapping[str, int]) -> Evaluation:
        """Score the model with the nodes of `bits` at these widths, others as the policy has them.

        The result is that of running all the data, bit for bit.
        """
        widths = {key: given.bits for key, given in self._given.items()} | dict(bits)
        over = self.baseline.needed > np.array([widths[key] for key in self.nodes])
        scores = list(self._scores)
        kept = np.full(over.shape, True)
        steps = np.array([self._steps[key] for key in self.nodes])
        meters = self._narrowing.fresh(widths, OverflowCounter)

        def again(item: tuple[int, B]) -> tuple[int, B, int, list[Value]]:
            number, batch = item
            with self._narrowing.measured(meters):
                start, outputs = self._outputs_from(number, batch, int(steps[over[number]].min()))
            return number, batch, start, outputs

        changed = (item for item in enumerate(self._data()) if over[item[0]].any())
        for number, batch, start, outputs in self._each(again, changed):
            kept[number] = steps < start
            scores[number] = self._scoring(outputs, batch, self._wide.read(number))
        overflows = self._overflows(meters, kept)
        return Evaluation(widths, float(np.concatenate(scores).mean()), overflows)

    def _each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """`work` of batches on all threads: side by side as far as there are so many."""
        items = iter(items)
        with parallel.threads(self._threads):
            allowed = parallel.allowed()
            first = list(islice(items, allowed))
            workers = max(len(first), 1)
            self._interpreter = self._interpreter.with_threads(allowed // workers)
            yield from in_order(work, chain(first, items), workers)

    def _outputs_from(self, number: int, batch: B, step: int) -> tuple[int, list[Value]]:
        """Where a batch in which nothing changes before `step` goes on from, and its outputs."""
        kept = self._kept.latest(number, step)
        start, alive = kept or (0, self._interpreter.begin(batch.inputs))
        return start, self._interpreter.outputs(self._interpreter.advance(alive, start))

    def _overflows(self, meters: Mapping[str, SumRunner], kept: Array) -> dict[str, NodeOverflows]:
        """Sums that were not made again are those that were made wide: `kept` (batches, nodes).

        None of them overflows. Products brought into a width of their own may have been changed.
        """
        wide = (self._altered * kept[:, :, None]).sum(0)
        places = {key: place for place, key in enumerate(self.nodes)}
        return {
            key: _overflow_of(meters[key], int(found.tally.outputs.sum()), *wide[places[key]])
            for key, found in self.baseline.accumulations.items()
        }

    def _measured(self) -> Baseline:
        """Run everything once, wide, and keep what later runs can begin from."""
        wide = {key: given.widest for key, given in self._given.items()}
        totals = self._narrowing.fresh(wide)
        needed, altered = [], []

        def whole(item: tuple[int, B]) -> tuple[B, dict[str, SumRunner], list[Value]]:
            number, batch = item
            meters = {key: total.fresh_copy() for key, total in totals.items()}
            with self._narrowing.measured(meters):
                return batch, meters, self._stepwise(number, batch)

        for batch, meters, outputs in self._each(whole, enumerate(self._data())):
            self._wide.append(outputs)
            self._scores.append(self._scoring(outputs, batch, outputs))
            needed.append([_needed(meter) for meter in meters.values()])
            altered.append([_altered(meter) for meter in meters.values()])
            for key, meter in meters.items():
                _add(totals[key], meter)
        self._altered = np.array(altered)
        scores = np.concatenate(self._scores)
        found = self._narrowing.accumulations(totals)
        return Baseline(float(scores.mean()), len(scores), np.array(needed), found)

    def _stepwise(self, number: int, batch: B) -> list[Value]:
        """The outputs for a batch; what is alive before each narrow node is kept if it may be."""
        alive, before = self._interpreter.begin(batch.inputs), 0
        for step in sorted(set(self._steps.values())):
            alive = self._interpreter.advance(alive, before, step)
            self._kept.offer(number, step, alive)
            before = step
        return self._interpreter.outputs(self._interpreter.advance(alive, before))


def _steps(main: Sequence[Node], model: Model, keys: Iterable[str]) -> dict[str, int]:
    """The step of the main graph that each node is, or is inside of."""
    places = {node.key: index for index, node in enumerate(main)}
    nodes = {node.key: node for node in model.nodes}

    def outermost(node: Node) -> Node:
        return node if node.scope.owner is None else outermost(node.scope.owner)

    return {key: places[outermost(nodes[key]).key] for key in keys}


def _needed(meter: SumRunner) -> int:
    return NARROWEST if meter.tally is None else int(meter.tally.bits_observed.max())


def _add(total: SumRunner, part: SumRunner) -> None:
    """Take in what was seen of another batch, whose sizes may differ."""
    if part.tally is None:
        return
    if total.tally is None:
        total.tally = part.tally
    else:
        alike = len(total.tally.outputs) == len(part.tally.outputs)
        total.tally = total.tally if alike else total.tally.folded()
        total.tally.merge(part.tally if alike else part.tally.folded())
    new = [r for r in part.reductions if not any(map(r.same_bounds, total.reductions))]
    total.reductions += new


def _altered(meter: SumRunner) -> tuple[int, int]:
    """Steps that left a range, and outputs that were changed, in accumulators that hold all."""
    if meter.tally is None:
        return 0, 0
    return int(meter.tally.saturation_events.sum()), int(meter.tally.outputs_changed.sum())


def _overflow_of(meter: SumRunner, outputs: int, events: int, changed: int) -> NodeOverflows:
    """The counts of a node, with what was kept of the wide run."""
    assert isinstance(meter, OverflowCounter)
    part = meter.counts + Counts(saturation_events=int(events), outputs_changed=int(changed))
    return NodeOverflows(outputs=outputs, **asdict(part))
