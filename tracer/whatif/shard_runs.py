"""Runs shards of the data in narrow accumulators, without repeating computations.

A run in narrow accumulators equals the run in wide ones up to the first partial sum that leaves the
range. A run in wide accumulators therefore shows, for all widths, which batches do not change; the
others continue from a checkpoint before the first node that overflows. Where only the score is
asked, they continue from the first node that differs from an earlier run.

What is kept makes later runs faster, and changes no result: a worker that has not run a shard
before runs its batches from their inputs.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TypeVar

import numpy as np

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine.sum_runner import Counts, LimitedSums, OverflowCounter, SumRunner
from tracer.accumulators.spec import NARROWEST
from tracer.accumulators.spec.policy import Policy
from tracer.containment.activity import Progress
from tracer.graph.model import Model
from tracer.graph.stored_weights import WeightFiles, findable
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel
from tracer.interpreter.values import Value
from tracer.limits import Limits
from tracer.metrics import Metric
from tracer.records.whatif import ShardBaseline, WideBatch
from tracer.scaling.pool import Shard
from tracer.support.types import Array
from tracer.whatif.criteria import Deadline, checked_metric, scorer, summary
from tracer.whatif.reuse import WIDE, AnyBatch, ArraySpill, Checkpoints, Path, StoredBatches

MEMORY = 1 << 28
"""Bytes of checkpoints, of all shards of a worker together."""


T = TypeVar("T")
R = TypeVar("R")
Scoring = Callable[[Sequence[Value], AnyBatch, Sequence[Value]], Array]
"""(outputs, batch, outputs in wide accumulators) -> scores (n,) of the samples of the batch."""
Summary = Callable[[Array, Sequence[Value]], WideBatch]
"""(scores, outputs in wide accumulators) -> what is kept of a batch."""
_Numbered = tuple[int, AnyBatch]
"""A batch after its number among all."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The model, the accumulators of its nodes, and what the runs may use.

    `memory` limits the bytes of checkpoints.
    """

    model: Model
    policy: Policy
    limits: Limits | None = None
    memory: int = MEMORY


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """Asks for an evaluation of a shard at `widths`, by node.

    `needed` is that of the baseline of the shard: batches for which all widths suffice are left
    out. With `counted`, overflows are counted as well. The next questions are about widths `near`.
    """

    widths: Mapping[str, int]
    needed: Array = field(repr=False)
    counted: bool
    near: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ShardEvaluation:
    """The scores of the batches of a shard that change, and the overflows of these batches.

    Batches are numbered within the shard; the run of each began at a step of `starts`, and nodes
    before it are not in `counts`, which are by node. They are empty where only scores were asked.
    """

    scores: Mapping[int, Array] = field(repr=False)
    starts: Mapping[int, int] = field(repr=False)
    counts: Mapping[str, Counts] = field(repr=False)


class ShardRuns:
    """Runs shards: `data` returns the batches of one, the same in each call.

    After the `deadline` an evaluation that changes a batch raises OutOfTimeError. Raises the errors
    of `AccumulatorEmulation` and `Interpreter`.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        data: Callable[[Shard], Iterable[AnyBatch]],
        scoring: Scoring,
        summary: Summary,
        *,
        threads: int | None = None,
        progress: Progress | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self._deadline = deadline or Deadline()
        self._emulation = AccumulatorEmulation(arithmetic.model, arithmetic.policy)
        self._interpreter = Interpreter(
            arithmetic.model,
            wrap_kernel=self._emulation.wrap,
            fuse=self._emulation.fuse,
            limits=arithmetic.limits,
            threads=threads,
            progress=progress,
        )
        self._threads = threads
        self._data = data
        self._scoring = scoring
        self._summary = summary
        self._accumulators = {
            key: runner.accumulator for key, runner in self._emulation.runners.items()
        }
        self._widest = {key: each.widest for key, each in self._accumulators.items()}
        indices = {node.key: index for index, node in enumerate(self._interpreter.steps)}
        nodes = {node.key: node for node in arithmetic.model.nodes}
        # of a body's node the step is that of the node around the body
        steps = [indices[nodes[key].outermost.key] for key in self._accumulators]
        self._node_steps = np.array(steps)
        self._checkpoints = Checkpoints(arithmetic.memory, self._node_steps.tolist())
        self._spill = ArraySpill()
        self._wide_outputs: dict[int, int] = {}

    def measure(self, shard: Shard) -> ShardBaseline:
        """Runs a shard in wide accumulators, and keeps what later runs start from."""
        began = time.perf_counter()
        totals = self._emulation.new_runners(self._widest)
        batches, needed, altered = list[WideBatch](), [], []
        wide = (WIDE,) * len(self._accumulators)

        def run(item: _Numbered) -> tuple[_Numbered, dict[str, SumRunner], list[Value]]:
            number, batch = item
            runners = {key: total.fresh_copy() for key, total in totals.items()}
            with self._emulation.using(runners):
                begun = self._interpreter.begin(batch.inputs)
                return item, runners, self._with_checkpoints(number, wide, 0, begun)

        for (number, batch), runners, outputs in self._map_parallel(run, self._numbered(shard)):
            self._keep(number, outputs)
            batches.append(self._summary(self._scoring(outputs, batch, outputs), outputs))
            tallies = [runner.tally for runner in runners.values()]
            needed.append([NARROWEST if t is None else int(t.bits_observed.max()) for t in tallies])
            altered.append(
                [
                    (0, 0) if t is None else (t.saturation_events.sum(), t.outputs_changed.sum())
                    for t in tallies
                ]
            )
            for key, runner in runners.items():
                totals[key].add(runner)
        return ShardBaseline(
            {key: each.bits for key, each in self._accumulators.items()},
            self._node_steps,
            tuple(batches),
            np.array(needed),
            np.array(altered),
            self._emulation.accumulations(totals),
            self._emulation.notes,
            time.perf_counter() - began,
        )

    def evaluate(self, shard: Shard, question: ShardRequest) -> ShardEvaluation:
        """Runs the batches of a shard that the widths change.

        The result equals a run over all of them, bit for bit.
        """
        paths = self._paths(question.widths, question.needed)
        starts: dict[int, int] = {}

        def counted(number: int, batch: AnyBatch, path: Path) -> list[Value]:
            shared = int(self._node_steps[np.array(path) != WIDE].min())
            start, alive = self._resume(number, batch, shared, path)
            starts[number - shard.first] = start
            return self._interpreter.outputs(self._interpreter.advance(alive, start))

        def scored(number: int, batch: AnyBatch, path: Path) -> list[Value]:
            end = len(self._interpreter.steps)
            return self._with_checkpoints(number, path, *self._resume(number, batch, end, path))

        if question.counted:
            runners = self._emulation.new_runners(question.widths, OverflowCounter)
            scores = self._rescored(shard, paths, runners, counted)
            counters = {k: r.counts for k, r in runners.items() if isinstance(r, OverflowCounter)}
            return ShardEvaluation(scores, starts, counters)
        if question.near is not None:
            near = self._paths(question.near, question.needed)
            self._checkpoints.make_room(
                {shard.first + number: path for number, path in enumerate(near)}
            )
        runners = self._emulation.new_runners(question.widths, LimitedSums)
        return ShardEvaluation(self._rescored(shard, paths, runners, scored), {}, {})

    def _paths(self, widths: Mapping[str, int], needed: Array) -> list[Path]:
        """The path of each batch: nodes before the first that overflows compute what they did."""
        own = np.array([widths[key] for key in self._accumulators])
        steps = np.where(needed > own, self._node_steps, len(self._interpreter.steps))
        first = steps.min(1, keepdims=True)
        paths: list[list[int]] = np.where(self._node_steps < first, WIDE, own).tolist()
        return [tuple(path) for path in paths]

    def _rescored(
        self,
        shard: Shard,
        paths: Sequence[Path],
        runners: Mapping[str, SumRunner],
        run: Callable[[int, AnyBatch, Path], list[Value]],
    ) -> dict[int, Array]:
        """The scores of the batches that change; calls `run` for them, with these runners."""
        scores: dict[int, Array] = {}

        def rerun(item: _Numbered) -> tuple[_Numbered, list[Value], Sequence[Value]]:
            number, batch = item
            with self._emulation.using(runners):
                outputs = run(number, batch, paths[number - shard.first])
            return item, outputs, self._wide(number, batch)

        def changed() -> Iterator[_Numbered]:
            for number, batch in self._numbered(shard):
                if any(paths[number - shard.first]):
                    self._deadline.check()
                    yield number, batch

        with self._deadline.turning_signals():
            for (number, batch), outputs, wide in self._map_parallel(rerun, changed()):
                scores[number - shard.first] = self._scoring(outputs, batch, wide)
        return scores

    def _numbered(self, shard: Shard) -> Iterator[_Numbered]:
        return enumerate(self._data(shard), shard.first)

    def _map_parallel(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yields `work` of each item; runs items in parallel, and shares spare threads."""
        items = iter(items)
        with parallel.threads(self._threads):
            allowed = parallel.allowed()
            first = list(islice(items, allowed))
            workers = max(len(first), 1)
            self._interpreter = self._interpreter.with_threads(allowed // workers)
            yield from in_order(work, chain(first, items), workers)

    def _resume(
        self, number: int, batch: AnyBatch, step: int, path: Path
    ) -> tuple[int, Mapping[str, Value]]:
        """A step of a batch, up to `step`, and the tensors alive before it."""
        checkpoint = self._checkpoints.latest(number, step, path)
        return checkpoint or (0, self._interpreter.begin(batch.inputs))

    def _keep(self, number: int, outputs: Sequence[Value]) -> None:
        if number not in self._wide_outputs:
            self._wide_outputs[number] = self._spill.append(outputs)

    def _wide(self, number: int, batch: AnyBatch) -> Sequence[Value]:
        """The outputs of a batch in wide accumulators, which another worker may have measured."""
        kept = self._wide_outputs.get(number)
        if kept is not None:
            return self._spill.read(kept)
        with self._emulation.using(self._emulation.new_runners(self._widest, LimitedSums)):
            begun = self._interpreter.begin(batch.inputs)
            outputs = self._with_checkpoints(number, (WIDE,) * len(self._widest), 0, begun)
        self._keep(number, outputs)
        return outputs

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


def in_order(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Yields `work(item)` for every item, in order, with `workers` items in progress at a time.

    Draws items in the calling thread, as they are needed. Raises an exception of `work` in the
    turn of its item. Waits for the items in progress when the caller stops early.
    """
    if workers < 2:
        yield from map(work, items)
        return
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="tracer") as pool:
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) > workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


@dataclass(frozen=True, slots=True)
class MetricJob:
    """Chooses the metric of a data set, and tries it on one sample; `spec` is what a user named."""

    batches: StoredBatches
    spec: str | None
    weights: WeightFiles | None = None

    def portable(self) -> "MetricJob":
        """Returns the job for other processes."""
        return replace(self, weights=WeightFiles.of(self.batches.dataset.model))

    def open(self, threads: int | None) -> "MetricJob":
        """Returns the job. Raises InputError where the model has other weights here."""
        if self.weights is not None:
            self.weights.check(self.batches.dataset.model)
        return self

    def metric(self) -> Metric:
        """Returns the metric. Raises the errors of `checked_metric`."""
        dataset = self.batches.dataset
        return checked_metric(dataset.model, dataset, self.spec)


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """Scores a model by a metric on batches of a data set.

    `progress` and `deadline` are of the process that made the job; `weights` are for other ones.
    """

    arithmetic: Arithmetic
    batches: StoredBatches
    metric: Metric
    progress: Progress | None = field(default=None, repr=False)
    deadline: Deadline | None = None
    weights: WeightFiles | None = None

    def portable(self) -> "EvaluationJob":
        """Returns the job for other processes."""
        model = findable(self.arithmetic.model)
        arithmetic = replace(self.arithmetic, model=model)
        weights = WeightFiles.of(model)
        return EvaluationJob(arithmetic, self.batches, self.metric, weights=weights)

    def open(self, threads: int | None) -> ShardRuns:
        """Returns the prepared model.

        Raises the errors of `ShardRuns`, and InputError where the model has other weights here.
        """
        model = self.arithmetic.model
        if self.weights is not None:
            self.weights.check(model)
        return ShardRuns(
            self.arithmetic,
            self.batches,
            scorer(model, self.batches.dataset, self.metric),
            summary(model, self.metric),
            threads=threads,
            progress=self.progress,
            deadline=self.deadline,
        )


@dataclass(frozen=True, slots=True)
class BatchesJob:
    """Scores a model by a function, on all batches that `data` returns."""

    arithmetic: Arithmetic
    data: Callable[[], Iterable[AnyBatch]]
    scoring: Scoring

    def portable(self) -> "BatchesJob":
        """Returns the job itself."""
        return self

    def open(self, threads: int | None) -> ShardRuns:
        """Returns the prepared model. Raises the errors of `ShardRuns`."""
        none = np.zeros(0, np.int64)

        def summarized(scores: Array, outputs: Sequence[Value]) -> WideBatch:
            return WideBatch(scores, np.zeros(len(scores)), (none, none), {})

        return ShardRuns(
            self.arithmetic, lambda shard: self.data(), self.scoring, summarized, threads=threads
        )
