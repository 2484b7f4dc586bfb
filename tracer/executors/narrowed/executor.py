"""Run a model under the reference interpreter with narrow accumulators, batch after batch."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import length_hint
from typing import Any

import numpy as np

from tracer.accumulators.narrowed_model import Narrowing
from tracer.accumulators.spec.policy import Policy
from tracer.executors.protocol import Executor, Profiled
from tracer.executors.reference.executor import EXECUTOR, described, kernel
from tracer.graph.model import Model, Node
from tracer.inputs.feedset import FeedSet
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.recording import NodeRecord, Recorder
from tracer.limits import Limits
from tracer.records.trace import Kernel, PartialSums, Run
from tracer.support.progress import Progress
from tracer.support.timing import elapsed_us

Receive = Callable[["FeedSet", Sequence[Any]], object]
"""Is handed the feeds and the outputs of every batch."""


@dataclass(frozen=True, slots=True)
class NarrowedSettings:
    """Settings of one run; `threads` 0 is as many as BLAS is set to use.

    `receive` is called with the feeds and the outputs of every batch.
    """

    policy: Policy
    threads: int = 0
    limits: Limits | None = None
    receive: Receive | None = None


class _Narrowed:
    settings = NarrowedSettings

    def profile(
        self,
        model: Model,
        batches: Iterable[FeedSet],
        settings: NarrowedSettings,
        progress: Progress,
    ) -> Profiled:
        """Runs `model` once on each of `batches` with the accumulators of the policy.

        `batches` are iterated more than once. Times are times of the emulation. Raises UsageError
        for a policy that does not fit the model, ModelError for a node that cannot be computed or,
        where overflow is an error, that overflows; LimitError beyond the limits.
        """
        narrowing = Narrowing(model, settings.policy)
        threads = settings.threads or None
        prepare = partial(
            Interpreter, model, limits=settings.limits, threads=threads, progress=progress
        )
        narrow = prepare(around=narrowing.kernel)
        narrowing.load(progress)
        first = next(iter(batches))
        types = _observed(prepare(), first)
        wall: list[float] = []
        notes: dict[str, None] = {}
        times = _Times()
        for done, feedset in enumerate(batches):
            records, time_us = _inference(narrow, feedset, settings.receive)
            times.add(records)
            wall.append(time_us)
            notes |= dict.fromkeys(feedset.notes)
            progress(done + 1, length_hint(batches), "accumulating")
        kernels = times.kernels(types)
        run = Run(
            executor=EXECUTOR,
            batch=first.batch,
            inputs=described(first.feeds),
            wall_us=np.array(wall),
            instrumented_us=np.array(wall),
            samples=times.samples(),
            bias_us=np.zeros(len(kernels)),
            kernels=kernels,
            notes=(*notes, *narrowing.notes, "times are those of emulating the accumulators"),
            sums=tuple(PartialSums.of(each) for each in narrowing.accumulations().values()),
        )
        return Profiled(run)


def _observed(plain: Interpreter, feedset: FeedSet) -> Mapping[str, NodeRecord]:
    """What goes through each node, from a run that is neither timed nor counted."""
    recorder = Recorder()
    plain.with_observers(recorder).run(None, feedset.feeds)
    return recorder.records


def _inference(
    narrow: Interpreter, feedset: FeedSet, receive: Receive | None
) -> tuple[Mapping[str, NodeRecord], float]:
    """What each node did, and the wall of the inference, µs."""
    recorder = Recorder(describe=False)
    outputs: list[Any] = []
    run = narrow.with_observers(recorder).run
    time_us = elapsed_us(lambda: outputs.extend(run(None, feedset.feeds)))
    if receive is not None:
        receive(feedset, outputs)
    return recorder.records, time_us


class _Times:
    """The time of every node in every batch, in few bytes; 0 where it did not run."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._calls: Counter[str] = Counter()
        self._times: dict[str, array[float]] = {}
        self._batches = 0

    def add(self, records: Mapping[str, NodeRecord]) -> None:
        """Take in what the nodes did on one batch."""
        for key, record in records.items():
            if key not in self._nodes:
                self._nodes[key] = record.node
                self._times[key] = array("f", bytes(4 * self._batches))
            self._calls[key] += record.calls
        for key, times in self._times.items():
            times.append(records[key].time_us if key in records else 0.0)
        self._batches += 1

    def kernels(self, known: Mapping[str, NodeRecord]) -> tuple[Kernel, ...]:
        """What ran, with the types that are `known` of it."""
        return tuple(
            kernel(known.get(key) or NodeRecord(node), self._calls[key] / self._batches)
            for key, node in self._nodes.items()
        )

    def samples(self) -> Any:
        """µs, float32 (batches, kernels)."""
        columns = [np.frombuffer(times, np.float32) for times in self._times.values()]
        return np.array(columns, np.float32).reshape(len(columns), self._batches).T


executor: Executor[Model, Iterable[FeedSet], NarrowedSettings] = _Narrowed()
