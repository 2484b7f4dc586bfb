"""Runs a model in the reference interpreter: times every node, and describes its values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tracer.containment.activity import Progress
from tracer.executors.measuring import Recorder as TurnRecorder
from tracer.executors.measuring import RunTimes
from tracer.executors.registry import Profiled, Receive, TensorExecutor, Tensors
from tracer.graph.model import Model
from tracer.graph.operators import precisions
from tracer.graph.tensor_type import types_of_calls
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.interpreter import compiled_code
from tracer.interpreter.fallback import Fallback
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Isolation, NodeRecord, Observer, Recorder, TensorRecorder
from tracer.limits import Limits
from tracer.records.trace import Kernel, NodeValues, Run
from tracer.support.measurements import elapsed_us
from tracer.support.tolerance import Difference, Tolerance

EXECUTOR = "reference"

_LONG_US = 1e6
"""An inference that takes this long is not repeated to warm up: its warm-up hardly matters."""


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """Settings of one profile; `threads` 0 uses the threads that BLAS is set to.

    `warmup` None warms up once where an inference takes less than a second.
    `fallback` computes the nodes that the interpreter has no operator for.
    `expected` are tensors of the main graph by name that another runtime computed from the same
    feeds. Every node is compared with them within `tolerance`, and once more in an inference in
    which each node reads them.
    """

    runs: int = 5
    warmup: int | None = None
    threads: int = 0
    limits: Limits | None = None
    fallback: Fallback | None = None
    receive: Receive | None = None
    expected: Mapping[str, Any] | None = field(default=None, repr=False)
    tolerance: Tolerance = field(default_factory=Tolerance)


def _inferences(
    interpreter: Interpreter, feedset: FeedSet, settings: ReferenceSettings, progress: Progress
) -> tuple[list[float], list[float], list[Mapping[str, NodeRecord]]]:
    """Returns times of whole inferences without and with a recorder, µs, and the records."""
    feeds, expected = dict(feedset.feeds), settings.expected or {}
    once = partial(interpreter.run, None, feeds)
    for _ in range(settings.warmup or 0):
        once()
    wall: list[float] = []
    if settings.warmup is None and (first := elapsed_us(once, compiled_code.clock_ns)) >= _LONG_US:
        wall.append(first)
    instrumented: list[float] = []
    records: list[Mapping[str, NodeRecord]] = []
    exact = precisions(interpreter.model, expected) if expected else {}
    for index in range(settings.runs):
        recorder = Recorder(index == 0, expected, settings.tolerance, exact)
        if len(wall) == index:
            wall.append(elapsed_us(once, compiled_code.clock_ns))
        outputs, time_us = recorded(interpreter, recorder, feeds)
        if index == 0 and settings.receive is not None:
            settings.receive(feedset, outputs)
        instrumented.append(time_us)
        records.append(recorder.records)
        progress(index + 1, settings.runs, "interpreting")
    return wall, instrumented, records


class _Reference:
    settings = ReferenceSettings

    def profile(
        self, model: Model, feedset: FeedSet, settings: ReferenceSettings, progress: Progress
    ) -> Profiled:
        """Times each node in `runs` inferences of `model`, and as many undisturbed inferences.

        The first timed inference also describes the values; its times exclude the description.
        Raises ModelError for a node that cannot be computed, LimitError beyond the limits.
        """
        interpreter = _interpreter(model, settings, progress=progress)
        wall, instrumented, runs = _inferences(interpreter, feedset, settings, progress)
        described = runs[0]
        own: Mapping[str, Difference] = {}  # the difference that each node makes by itself, by key
        if settings.expected:
            isolation = Isolation(interpreter.model, settings.expected, settings.tolerance)
            interpreter.with_observers(isolation).run(None, feedset.feeds)
            own = isolation.differences
        kernels = tuple(
            kernel(record, sum(run[key].calls for run in runs if key in run) / len(runs))
            for key, record in described.items()
        )
        samples = [[run[key].time_us if key in run else 0.0 for key in described] for run in runs]
        times: Any = np.array(samples, np.float32)  # half the file size of float64
        run = Run(
            executor=EXECUTOR,
            batch=feedset.batch,
            inputs=feedset.types,
            wall_us=np.array(wall),
            instrumented_us=np.array(instrumented),
            samples=times.reshape(settings.runs, len(kernels)),
            bias_us=np.zeros(len(kernels)),  # the recorder's own work is outside its times
            kernels=kernels,
            notes=(*feedset.notes, *interpreter.notes, *compiled_code.notes()),
            values=tuple(
                NodeValues(key, record.statistics, record.difference, own.get(key))
                for key, record in described.items()
            ),
        )
        return Profiled(run)

    @contextmanager
    def ready(
        self, model: Model, feedset: FeedSet, settings: ReferenceSettings
    ) -> Iterator[Callable[[], float]]:
        interpreter = _interpreter(model, settings)
        once = partial(interpreter.run, None, dict(feedset.feeds))
        once()
        yield lambda: elapsed_us(once, compiled_code.clock_ns)

    @contextmanager
    def recording(
        self, model: Model, feedset: FeedSet, settings: ReferenceSettings
    ) -> Iterator[TurnRecorder]:
        """Prepares the model and runs it once; recorded runs time every node."""
        interpreter = _interpreter(model, settings)
        feeds = dict(feedset.feeds)
        once = partial(interpreter.run, None, feeds)
        once()
        durations: list[float] = []
        by_node: list[Mapping[str, float]] = []

        def record(runs: int) -> None:
            for _ in range(runs):
                recorder = Recorder(False, {})
                durations.append(recorded(interpreter, recorder, feeds)[1])
                by_node.append({key: each.time_us for key, each in recorder.records.items()})

        def read() -> RunTimes:
            keys = list(dict.fromkeys(key for times in by_node for key in times))
            # a node that a run did not reach took no time
            rows = [[times.get(key, 0.0) for key in keys] for times in by_node]
            samples = np.array(rows, np.float64).reshape(len(rows), len(keys))
            return RunTimes(keys, samples, np.array(durations))

        yield TurnRecorder(lambda: elapsed_us(once, compiled_code.clock_ns), record, read)

    @contextmanager
    def outputs(
        self, model: Model, settings: ReferenceSettings
    ) -> Iterator[Callable[[Feeds], Sequence[Any]]]:
        interpreter = _interpreter(model, settings)
        yield partial(interpreter.run, None)

    def tensors(self, model: Model, feedset: FeedSet, settings: ReferenceSettings) -> Tensors:
        recorder = TensorRecorder()
        interpreter = _interpreter(model, settings, [recorder])
        return Tensors(interpreter.run(None, feedset.feeds), recorder.tensors)


def _interpreter(
    model: Model,
    settings: ReferenceSettings,
    observers: Sequence[Observer] = (),
    progress: Progress | None = None,
) -> Interpreter:
    return Interpreter(
        model, fallback=settings.fallback, observers=observers, limits=settings.limits,
        threads=settings.threads or None, progress=progress,
    )  # fmt: skip


def recorded(interpreter: Interpreter, recorder: Recorder, feeds: Feeds) -> tuple[list[Any], float]:
    """Returns the outputs of one inference, and its time in µs without the recorder's work."""
    outputs: list[Any] = []
    run = interpreter.with_observers(recorder).run
    time_us = elapsed_us(lambda: outputs.extend(run(None, feeds)), compiled_code.clock_ns)
    return outputs, time_us - recorder.own_us


def kernel(record: NodeRecord, calls: float) -> Kernel:
    """Returns a node as a kernel that runs `calls` times in an inference."""
    node = record.node
    types, varying = types_of_calls(record.types) if record.types else (((), ()), ())
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
        input_types=types[0],
        output_types=types[1],
        calls=calls,
        varying=varying,
    )


executor: TensorExecutor[Model, FeedSet, ReferenceSettings] = _Reference()
