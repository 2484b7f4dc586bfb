"""Run a model in the reference interpreter: time every node, and describe its values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tracer.executors.protocol import Executor, Profiled
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.interpreter.inspection import Inspection, inspect
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.recording import NodeRecord, Recorder
from tracer.limits import Limits
from tracer.records.trace import Kernel, NodeValues, Run
from tracer.support.progress import Progress
from tracer.support.timing import elapsed_us
from tracer.support.tolerance import Tolerance
from tracer.support.types import type_text

EXECUTOR = "reference"

Receive: TypeAlias = Callable[[FeedSet, Sequence[Any]], object]
"""Called with the feeds and the outputs of every batch."""


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """Settings of one profile; `threads` 0 uses the threads that BLAS is set to.

    `expected` are tensors of the main graph by name that another runtime computed from the same
    feeds; every node is compared with them within `tolerance`.
    """

    runs: int = 5
    warmup: int = 1
    threads: int = 0
    limits: Limits | None = None
    receive: Receive | None = None
    expected: Mapping[str, Any] | None = field(default=None, repr=False)
    tolerance: Tolerance = field(default_factory=Tolerance)


class _Reference:
    settings = ReferenceSettings

    def profile(
        self, model: Model, feedset: FeedSet, settings: ReferenceSettings, progress: Progress
    ) -> Profiled:
        """Times each node in `runs` inferences of `model`, and as many undisturbed inferences.

        One inference before them describes the values, and counts as a warm-up. Raises ModelError
        for a node that cannot be computed, LimitError beyond the limits.
        """
        feeds = dict(feedset.feeds)
        threads = settings.threads or None
        plain = Interpreter(model, limits=settings.limits, threads=threads, progress=progress)
        inspection = inspect(plain, feeds, settings.expected, settings.tolerance)
        if settings.receive is not None:
            settings.receive(feedset, inspection.outputs)
        for _ in range(settings.warmup - 1):
            plain.run(None, feeds)
        wall: list[float] = []
        instrumented: list[float] = []
        runs: list[Mapping[str, NodeRecord]] = []
        for index in range(settings.runs):
            recorder = Recorder(describe=False)
            timed = plain.with_observers(recorder)
            wall.append(elapsed_us(lambda: plain.run(None, feeds)))
            instrumented.append(elapsed_us(lambda run=timed.run: run(None, feeds)))  # type: ignore[misc]
            runs.append(recorder.records)
            progress(index + 1, settings.runs, "interpreting")
        kernels = tuple(
            kernel(record, sum(run[key].calls for run in runs if key in run) / len(runs))
            for key, record in inspection.records.items()
        )
        samples = [
            [run[key].time_us if key in run else 0.0 for key in inspection.records] for run in runs
        ]
        times: Any = np.array(samples, np.float32)  # half the file size of float64
        run = Run(
            executor=EXECUTOR,
            batch=feedset.batch,
            inputs=input_types(feeds),
            wall_us=np.array(wall),
            instrumented_us=np.array(instrumented),
            samples=times.reshape(settings.runs, len(kernels)),
            bias_us=np.zeros(len(kernels)),  # the recorder's own work is outside its times
            kernels=kernels,
            notes=feedset.notes,
            values=_values(inspection),
        )
        return Profiled(run)


def _values(inspection: Inspection) -> tuple[NodeValues, ...]:
    return tuple(
        NodeValues(key, record.statistics, inspection.differences.get(key))
        for key, record in inspection.records.items()
    )


def kernel(record: NodeRecord, calls: float) -> Kernel:
    """Returns a node as a kernel that runs `calls` times in an inference."""
    node = record.node
    return Kernel(
        name=node.key,
        op_type=node.op_type,
        domain=node.domain,
        provider="numpy",
        node=node.key,
        scope=node.scope.path,
        inputs=node.inputs,
        outputs=node.outputs,
        attributes=(),
        input_types=record.inputs,
        output_types=record.outputs,
        calls=calls,
    )


def input_types(feeds: Feeds) -> dict[str, str]:
    """Returns the type of every input by name."""
    return {name: type_text(value) for name, value in feeds.items()}


executor: Executor[Model, FeedSet, ReferenceSettings] = _Reference()
