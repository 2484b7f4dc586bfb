"""Evaluates a network on data at many widths, without repeating computations.

A run in narrow accumulators equals the run in wide ones up to the first partial sum that leaves the
range. One baseline run therefore shows, for all widths, which batches do not change; the others
continue from a checkpoint before the first node that overflows. Where only the score is asked, they
continue from the first node that differs from an earlier run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Generic, Protocol, TypeVar

import numpy as np

from tracer.accumulators.engine.limited_sums import LimitedSums
from tracer.accumulators.engine.overflow_counter import Counts, OverflowCounter
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.narrowed_model import Narrowing
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.spec.register import NARROWEST
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.graph.model import Model, Node
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel
from tracer.interpreter.values import Value
from tracer.limits import Limits
from tracer.records.whatif import Evaluation, NodeOverflows
from tracer.support.progress import Progress
from tracer.support.types import Array
from tracer.whatif.array_spill import ArraySpill
from tracer.whatif.checkpoints import WIDE, Checkpoints, Path
from tracer.whatif.concurrent import in_order
from tracer.whatif.deadline import Deadline


class Batch(Protocol):
    """Samples that the model takes together."""

    @property
    def inputs(self) -> Mapping[str, Value]:
        """Arrays by input name."""


B = TypeVar("B", bound=Batch)
T = TypeVar("T")
R = TypeVar("R")
Scoring = Callable[[Sequence[Value], B, Sequence[Value]], Array]
"""(outputs, batch, outputs in wide accumulators) -> scores (n,) of the samples of the batch."""
_RunBatch = Callable[[int, B, Path], list[Value]]
"""(number of a batch, batch, its path) -> outputs."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The run in accumulators that hold every sum: its score, and the sums of each node.

    `needed` (batches, nodes), int64, are the widths that hold all partial sums of a batch.
    """

    score: float
    samples: int
    needed: Array
    accumulations: Mapping[str, PartialSums]

    def overflow_share(self, node: str, bits: int) -> float:
        """The share of the sums of a node that leave `bits` bits while all others are wide."""
        if node not in self.accumulations:
            return 0.0
        counts = self.accumulations[node].tally.overflow(bits)
        return float(counts.overflow_outputs.sum() / max(counts.outputs.sum(), 1))


class Evaluator(Generic[B]):
    """Evaluates a model, with the accumulators of a policy, on data.

    Each call of `data` returns the same batches. `memory` limits the bytes of checkpoints. After
    the `deadline` an evaluation that changes a batch raises OutOfTimeError. Raises the errors of
    `Narrowing` and `Interpreter`.
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
        deadline: Deadline | None = None,
    ) -> None:
        self._deadline = deadline or Deadline()
        self._narrowing = Narrowing(model, policy)
        self._interpreter = Interpreter(
            model,
            around=self._narrowing.kernel,
            fuse=self._narrowing.fuse,
            limits=limits,
            threads=threads,
            progress=progress,
        )
        self._threads = threads
        self._data = data
        self._scoring = scoring
        self._wide_outputs = ArraySpill()
        self._accumulators = {
            key: runner.accumulator for key, runner in self._narrowing.runners.items()
        }
        steps = _steps(self._interpreter.steps, model, self._accumulators)
        self._node_steps = np.array([steps[key] for key in self._accumulators])
        self._checkpoints = Checkpoints(memory, self._node_steps.tolist())
        self._scores: list[Array] = []
        self.baseline = self._measured_baseline()
        self.notes = self._narrowing.notes

    @property
    def nodes(self) -> tuple[str, ...]:
        """Keys of the narrow nodes, in the order of the model."""
        return tuple(self._accumulators)

    @property
    def wide_runs(self) -> Iterator[tuple[Array, list[Array]]]:
        """The scores of each batch in wide accumulators, and its outputs."""
        for number, scores in enumerate(self._scores):
            yield scores, self._wide_outputs.read(number)

    def evaluate(self, bits: Mapping[str, int]) -> Evaluation:
        """Scores the model with the nodes of `bits` at these widths, others as in the policy.

        The result equals a run over all the data, bit for bit.
        """
        widths = self._widths(bits)
        runners = self._narrowing.new_runners(widths, OverflowCounter)
        reused = np.full(self.baseline.needed.shape, True)

        def counted(number: int, batch: B, path: Path) -> list[Value]:
            shared = int(self._node_steps[np.array(path) != WIDE].min())
            start, alive = self._begun(number, batch, shared, path)
            reused[number] = self._node_steps < start
            return self._interpreter.outputs(self._interpreter.advance(alive, start))

        return Evaluation(
            widths, self._rescored(widths, runners, counted), self._overflows(runners, reused)
        )

    def score(self, bits: Mapping[str, int], near: Mapping[str, int] | None = None) -> Evaluation:
        """Returns the evaluation without overflows: the score of `evaluate`, in less time.

        `near` are widths that the next evaluations differ little from; what was computed in other
        widths is forgotten where memory is short.
        """
        if near is not None:
            self._checkpoints.make_room(self._paths(self._widths(near)))
        widths, end = self._widths(bits), len(self._interpreter.steps)

        def scored(number: int, batch: B, path: Path) -> list[Value]:
            return self._with_checkpoints(number, path, *self._begun(number, batch, end, path))

        runners = self._narrowing.new_runners(widths, LimitedSums)
        return Evaluation(widths, self._rescored(widths, runners, scored), None)

    def _widths(self, bits: Mapping[str, int]) -> dict[str, int]:
        return {key: each.bits for key, each in self._accumulators.items()} | dict(bits)

    def _paths(self, widths: Mapping[str, int]) -> list[Path]:
        """The path of each batch: nodes before the first that overflows compute what they did."""
        own = np.array([widths[key] for key in self.nodes])
        overflows = self.baseline.needed > own
        steps = np.where(overflows, self._node_steps, len(self._interpreter.steps))
        first = steps.min(1, keepdims=True)
        paths: list[list[int]] = np.where(self._node_steps < first, WIDE, own).tolist()
        return [tuple(path) for path in paths]

    def _rescored(
        self, widths: Mapping[str, int], runners: Mapping[str, SumRunner], run: _RunBatch[B]
    ) -> float:
        """The mean score; calls `run` for the batches that change, with these runners."""
        paths, scores = self._paths(widths), list(self._scores)
        if not any(map(any, paths)):
            return self.baseline.score

        def rerun(item: tuple[int, B]) -> tuple[int, B, list[Value]]:
            number, batch = item
            with self._narrowing.using(runners):
                return number, batch, run(number, batch, paths[number])

        def changed() -> Iterator[tuple[int, B]]:
            for number, batch in enumerate(self._data()):
                if any(paths[number]):
                    self._deadline.check()
                    yield number, batch

        with self._deadline.reached():
            for number, batch, outputs in self._each(rerun, changed()):
                scores[number] = self._scoring(outputs, batch, self._wide_outputs.read(number))
        return float(np.concatenate(scores).mean())

    def _each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yields `work` of each item; runs items in parallel, and shares spare threads."""
        items = iter(items)
        with parallel.threads(self._threads):
            allowed = parallel.allowed()
            first = list(islice(items, allowed))
            workers = max(len(first), 1)
            self._interpreter = self._interpreter.with_threads(allowed // workers)
            yield from in_order(work, chain(first, items), workers)

    def _begun(
        self, number: int, batch: B, step: int, path: Path
    ) -> tuple[int, Mapping[str, Value]]:
        """A step of a batch, up to `step`, and the tensors alive before it."""
        checkpoint = self._checkpoints.latest(number, step, path)
        return checkpoint or (0, self._interpreter.begin(batch.inputs))

    def _overflows(
        self, runners: Mapping[str, SumRunner], reused: Array
    ) -> dict[str, NodeOverflows]:
        """Adds the counts of the baseline where its sums were `reused` (batches, nodes).

        Those sums do not overflow, but reduced-width products may have changed them.
        """
        altered = (self._altered * reused[:, :, None]).sum(0)
        indices = {key: index for index, key in enumerate(self.nodes)}
        return {
            key: _node_overflows(
                runners[key], int(sums.tally.outputs.sum()), *altered[indices[key]]
            )
            for key, sums in self.baseline.accumulations.items()
        }

    def _measured_baseline(self) -> Baseline:
        """Runs all batches in wide accumulators, and stores what later runs start from."""
        widest = {key: each.widest for key, each in self._accumulators.items()}
        totals = self._narrowing.new_runners(widest)
        needed, altered = [], []
        wide = (WIDE,) * len(self.nodes)

        def run(item: tuple[int, B]) -> tuple[B, dict[str, SumRunner], list[Value]]:
            number, batch = item
            runners = {key: total.fresh_copy() for key, total in totals.items()}
            with self._narrowing.using(runners):
                begun = self._interpreter.begin(batch.inputs)
                return batch, runners, self._with_checkpoints(number, wide, 0, begun)

        for batch, runners, outputs in self._each(run, enumerate(self._data())):
            self._wide_outputs.append(outputs)
            self._scores.append(self._scoring(outputs, batch, outputs))
            needed.append([_needed(runner) for runner in runners.values()])
            altered.append([_altered(runner) for runner in runners.values()])
            for key, runner in runners.items():
                totals[key].add(runner)
        self._altered = np.array(altered)
        scores = np.concatenate(self._scores)
        sums = self._narrowing.accumulations(totals)
        return Baseline(float(scores.mean()), len(scores), np.array(needed), sums)

    def _with_checkpoints(
        self, number: int, path: Path, start: int, alive: Mapping[str, Value]
    ) -> list[Value]:
        """The outputs for a batch; offers checkpoints before later narrow nodes and at the end."""
        end = len(self._interpreter.steps)
        for step in sorted({*self._node_steps.tolist(), end}):
            if step > start:
                alive, start = self._interpreter.advance(alive, start, step), step
                self._checkpoints.offer(number, step, path, alive)
        return self._interpreter.outputs(alive)


def _steps(main: Sequence[Node], model: Model, keys: Iterable[str]) -> dict[str, int]:
    """The step of the main graph that each node is, or is inside of."""
    indices = {node.key: index for index, node in enumerate(main)}
    nodes = {node.key: node for node in model.nodes}

    def outermost(node: Node) -> Node:
        return node if node.scope.owner is None else outermost(node.scope.owner)

    return {key: indices[outermost(nodes[key]).key] for key in keys}


def _needed(runner: SumRunner) -> int:
    return NARROWEST if runner.tally is None else int(runner.tally.bits_observed.max())


def _altered(runner: SumRunner) -> tuple[int, int]:
    """Saturation events and changed outputs in wide accumulators, by reduced-width products."""
    if runner.tally is None:
        return 0, 0
    return int(runner.tally.saturation_events.sum()), int(runner.tally.outputs_changed.sum())


def _node_overflows(runner: SumRunner, outputs: int, events: int, changed: int) -> NodeOverflows:
    """The counts of `runner`, plus events and changed outputs of reused batches."""
    assert isinstance(runner, OverflowCounter)
    counts = runner.counts + Counts(saturation_events=int(events), outputs_changed=int(changed))
    return NodeOverflows(outputs=outputs, **asdict(counts))
