"""Runs a model in the reference interpreter with narrow accumulators, on many batches."""

import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import length_hint
from typing import Any, TypeVar

import numpy as np

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.float_accumulator import draws
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums
from tracer.accumulators.statistics.partial_sums import PartialSums, SampleRecorder, SampleSums
from tracer.containment.activity import Progress, silent
from tracer.errors import UsageError
from tracer.executors.reference.executor import EXECUTOR, kernel, recorded
from tracer.executors.registry import Executor, Profiled, Receive
from tracer.graph.model import Model, Node
from tracer.graph.stored_weights import WeightFiles, findable
from tracer.inputs.datasets.opening import FeedBatches
from tracer.inputs.feedset import FeedSet
from tracer.interpreter import compiled_code
from tracer.interpreter.fallback import Fallback
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import NodeRecord, Recorder
from tracer.limits import Limits
from tracer.records.trace import EMULATED, Kernel, Run
from tracer.scaling.pool import Pool, Shard, Timed, run_on_shards
from tracer.support.types import Array

_Sums = TypeVar("_Sums", PartialSums, FloatPartialSums)


@dataclass(frozen=True, slots=True)
class EmulatedSettings:
    """Settings of one run; `threads` 0 uses the threads that BLAS is set to.

    `fallback` computes the nodes that the interpreter has no operator for. With `by_sample` each
    batch is one sample, whose sums are counted apart as well. The workers of `pool` share the
    batches of a data set; `receive` is then not called.
    """

    policy: Policy
    threads: int = 0
    limits: Limits | None = None
    fallback: Fallback | None = None
    receive: Receive | None = None
    by_sample: bool = False
    pool: Pool | None = None


class _Emulated:
    settings = EmulatedSettings

    def profile(
        self,
        model: Model,
        batches: Iterable[FeedSet],
        settings: EmulatedSettings,
        progress: Progress,
    ) -> Profiled:
        """Runs `model` once on each of `batches` with the accumulators of the policy.

        Times are times of the emulation. Raises UsageError for a policy that does not fit the
        model, or statistics by sample of several samples at a time; ModelError for a node that
        cannot be computed or, where overflow is an error, that overflows; LimitError beyond the
        limits.
        """
        pool = settings.pool
        is_cut = isinstance(batches, FeedBatches) and batches.may_be_cut
        if pool is None or not pool.workers or not is_cut:
            return Profiled(_run(model, batches, settings, progress))
        assert isinstance(batches, FeedBatches)
        refuse_draws(model, settings.policy)
        plain = replace(settings, receive=None, pool=None)
        parts = run_on_shards(
            pool, _RunsJob(model, batches, plain), "run", length_hint(batches), progress
        )
        return Profiled(merged([part.result for part in parts]))


def _run(
    model: Model, batches: Iterable[FeedSet], settings: EmulatedSettings, progress: Progress
) -> Run:
    """Runs all batches in this process."""
    emulation = AccumulatorEmulation(model, settings.policy)
    if settings.by_sample and emulation.float_rules:
        raise UsageError(
            "statistics by sample count sums of integers, and "
            f"'{min(emulation.float_rules)}' has a float accumulator",
            "Leave out --by sample, or set widths alone.",
        )
    narrow = Interpreter(
        model,
        wrap_kernel=emulation.wrap,
        fallback=settings.fallback,
        limits=settings.limits,
        threads=settings.threads or None,
        progress=progress,
    )
    wall: list[float] = []
    notes: dict[str, None] = {}
    times = _Times()
    samples = SampleRecorder() if settings.by_sample else None
    for index, feedset in enumerate(batches):
        recorder = Recorder(describe=index == 0)
        with _counted(samples, emulation, model, feedset):
            outputs, time_us = recorded(narrow, recorder, feedset.feeds)
        if index == 0:
            first, described = feedset, recorder.records
        if settings.receive is not None:
            settings.receive(feedset, outputs)
        times.add(recorder.records)
        wall.append(time_us)
        notes |= dict.fromkeys(feedset.notes)
        progress(index + 1, length_hint(batches), "accumulating")
    kernels = times.kernels(described)
    return Run(
        executor=EXECUTOR,
        batch=first.batch,
        inputs=first.types,
        wall_us=np.array(wall),
        instrumented_us=np.array(wall),
        samples=times.samples(),
        bias_us=np.zeros(len(kernels)),
        kernels=kernels,
        notes=(*notes, *emulation.notes, *narrow.notes, *compiled_code.notes(), EMULATED),
        sums=tuple(emulation.accumulations().values()),
        float_sums=emulation.float_sums,
        sums_by_sample=None if samples is None else samples.collected(),
    )


@contextmanager
def _counted(
    samples: SampleRecorder | None, emulation: AccumulatorEmulation, model: Model, feedset: FeedSet
) -> Iterator[None]:
    """Records what runs inside as a sample, and adds it to the statistics of the whole run."""
    if samples is None:
        yield
        return
    if feedset.batch not in (None, 1):
        raise UsageError(
            f"{model.name} takes {feedset.batch} samples at a time, which share their counts",
            "Statistics by sample need a model with a free batch, or a batch of 1.",
        )
    runners = {key: total.fresh_copy() for key, total in emulation.runners.items()}
    with emulation.using(runners):
        yield
    samples.add({key: each.tally for key, each in runners.items() if each.tally is not None})
    for key, runner in runners.items():
        emulation.runners[key].add(runner)


class _Times:
    """Times of every node in every batch as float32 arrays; 0 where a node did not run."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._calls: Counter[str] = Counter()
        self._times: dict[str, array[float]] = {}
        self._batches = 0

    def add(self, records: Mapping[str, NodeRecord]) -> None:
        """Adds the records of one batch."""
        for key, record in records.items():
            if key not in self._nodes:
                self._nodes[key] = record.node
                self._times[key] = array("f", bytes(4 * self._batches))
            self._calls[key] += record.calls
        for key, times in self._times.items():
            times.append(records[key].time_us if key in records else 0.0)
        self._batches += 1

    def kernels(self, described: Mapping[str, NodeRecord]) -> tuple[Kernel, ...]:
        """Returns a kernel for every node, with the types in `described`."""
        return tuple(
            kernel(described.get(key) or NodeRecord(node), self._calls[key] / self._batches)
            for key, node in self._nodes.items()
        )

    def samples(self) -> Any:
        """Returns the times, µs, float32 (batches, kernels)."""
        columns = [np.frombuffer(times, np.float32) for times in self._times.values()]
        return np.array(columns, np.float32).reshape(len(columns), self._batches).T


@dataclass(frozen=True, slots=True)
class _RunsJob:
    model: Model = field(repr=False)
    batches: FeedBatches
    settings: EmulatedSettings
    weights: WeightFiles | None = None

    def portable(self) -> "_RunsJob":
        model = findable(self.model)
        return replace(self, model=model, weights=WeightFiles.of(model))

    def open(self, threads: int | None) -> "_RunsJob":
        if self.weights is not None:
            self.weights.check(self.model)
        return replace(self, settings=replace(self.settings, threads=threads or 0))

    def run(self, shard: Shard) -> Timed:
        """Runs the batches of a shard."""
        assert shard.count is not None
        began = time.perf_counter()
        batches = self.batches.part(shard.first, shard.count)
        run = _run(self.model, batches, self.settings, silent)
        return Timed(run, time.perf_counter() - began)


def refuse_draws(model: Model, policy: Policy) -> None:
    """Raises UsageError for stochastic rounding of floats: it numbers the sums of all the data."""
    for node, rule in policy.assign(model.nodes).items():
        if draws(rule.accumulator):
            raise UsageError(
                f"{model.name}: node '{node}' rounds by random numbers, which depend on the number "
                "of the sum in all the data",
                "Leave out --workers and --scheduler.",
            )


def merged(runs: Sequence[Run]) -> Run:
    """Returns one run of the batches of several, in their order.

    It has all nodes that ran, with the types of the first batch and the mean of their calls. Times
    are 0 where a node did not run.
    """
    calls: Counter[str] = Counter()
    kernels: dict[str, Kernel] = {}
    for number, run in enumerate(runs):
        for each in run.kernels:
            untyped = replace(each, input_types=(), output_types=(), varying=())
            kernels.setdefault(each.name, untyped if number else each)
            calls[each.name] += round(each.calls * len(run.wall_us))
    wall = np.concatenate([run.wall_us for run in runs])
    columns = {name: index for index, name in enumerate(kernels)}
    samples: Array = np.zeros((len(wall), len(kernels)), np.float32)
    end = 0
    for run in runs:
        begin, end = end, end + len(run.wall_us)
        samples[begin:end, [columns[each.name] for each in run.kernels]] = run.samples
    by_sample = [run.sums_by_sample for run in runs if run.sums_by_sample is not None]
    notes = dict.fromkeys(note for run in runs for note in run.notes if note != EMULATED)
    return replace(
        runs[0],
        wall_us=wall,
        instrumented_us=wall,
        samples=samples,
        bias_us=np.zeros(len(kernels)),
        kernels=tuple(replace(e, calls=calls[name] / len(wall)) for name, e in kernels.items()),
        notes=(*notes, EMULATED),
        sums=merged_by_node([run.sums for run in runs]),
        float_sums=merged_by_node([run.float_sums for run in runs]),
        sums_by_sample=SampleSums.merged(by_sample) if by_sample else None,
    )


def merged_by_node(sums: Sequence[Sequence[_Sums]]) -> tuple[_Sums, ...]:
    """Returns the sums of each node in all of several runs."""
    nodes: dict[str, list[_Sums]] = {}
    for own in sums:
        for each in own:
            nodes.setdefault(each.node, []).append(each)
    return tuple(parts[0].merged(parts) for parts in nodes.values())


executor: Executor[Model, Iterable[FeedSet], EmulatedSettings] = _Emulated()
