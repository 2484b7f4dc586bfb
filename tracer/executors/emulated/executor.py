"""Runs a model in the reference interpreter with narrow accumulators, on many batches."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from operator import length_hint
from typing import Any, TypeGuard

import numpy as np

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.sample_sums import SampleRecorder
from tracer.errors import UsageError
from tracer.executors.emulated.shared import refuse_draws, shared_run
from tracer.executors.protocol import Executor, Profiled, Receive
from tracer.executors.reference.executor import EXECUTOR, input_types, kernel, recorded
from tracer.graph.model import Model, Node
from tracer.inputs.batches import FeedBatches
from tracer.inputs.feedset import FeedSet
from tracer.interpreter import compiled_code
from tracer.interpreter.fallback import Fallback
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import NodeRecord, Recorder
from tracer.limits import Limits
from tracer.records.trace import EMULATED, Kernel, Run
from tracer.scaling.pool import Pool
from tracer.support.progress import Progress, silent


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
        if pool is None or not pool.workers or not _may_be_cut(batches):
            return Profiled(_run(model, batches, settings, progress))
        refuse_draws(model, settings.policy)
        plain = replace(settings, receive=None, pool=None)
        return Profiled(shared_run(model, batches, partial(_part, plain), pool, progress))


def _may_be_cut(batches: Iterable[FeedSet]) -> TypeGuard[FeedBatches]:
    return isinstance(batches, FeedBatches) and batches.may_be_cut


def _part(
    settings: EmulatedSettings, model: Model, batches: Iterable[FeedSet], threads: int | None
) -> Run:
    return _run(model, batches, replace(settings, threads=threads or 0), silent)


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
    samples = _Samples(emulation) if settings.by_sample else None
    for index, feedset in enumerate(batches):
        recorder = Recorder(describe=index == 0)
        with nullcontext() if samples is None else samples.counted(model, feedset):
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
        inputs=input_types(first.feeds),
        wall_us=np.array(wall),
        instrumented_us=np.array(wall),
        samples=times.samples(),
        bias_us=np.zeros(len(kernels)),
        kernels=kernels,
        notes=(*notes, *emulation.notes, *narrow.notes, *compiled_code.notes(), EMULATED),
        sums=tuple(emulation.accumulations().values()),
        float_sums=emulation.float_sums,
        sums_by_sample=None if samples is None else samples.recorder.collected(),
    )


class _Samples:
    """Counts the sums of each batch, which is one sample, apart from those before."""

    def __init__(self, emulation: AccumulatorEmulation) -> None:
        self._emulation = emulation
        self.recorder = SampleRecorder()

    @contextmanager
    def counted(self, model: Model, feedset: FeedSet) -> Iterator[None]:
        """Records what runs inside as a sample, and adds it to the statistics of the whole run."""
        if feedset.batch not in (None, 1):
            raise UsageError(
                f"{model.name} takes {feedset.batch} samples at a time, which share their counts",
                "Statistics by sample need a model with a free batch, or a batch of 1.",
            )
        totals = self._emulation.runners
        runners = {key: total.fresh_copy() for key, total in totals.items()}
        with self._emulation.using(runners):
            yield
        tallies = {key: each.tally for key, each in runners.items() if each.tally is not None}
        self.recorder.add(tallies)
        for key, runner in runners.items():
            totals[key].add(runner)


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


executor: Executor[Model, Iterable[FeedSet], EmulatedSettings] = _Emulated()
