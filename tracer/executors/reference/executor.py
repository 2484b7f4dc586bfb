"""Run a model under the reference interpreter, and time every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.executors.protocol import Executor, Profiled
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.recording import NodeRecord, Recorder
from tracer.limits import Limits
from tracer.records.trace import Kernel, Run
from tracer.support.progress import Progress
from tracer.support.timing import elapsed_us
from tracer.support.types import type_text

EXECUTOR = "reference"


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """Settings of one profile; `threads` 0 is as many as BLAS is set to use."""

    runs: int = 5
    warmup: int = 1
    threads: int = 0
    limits: Limits | None = None


class _Reference:
    settings = ReferenceSettings

    def profile(
        self, model: Model, feedset: FeedSet, settings: ReferenceSettings, progress: Progress
    ) -> Profiled:
        """Times each node in `runs` inferences of `model`, and as many undisturbed inferences.

        Raises ModelError for a node that cannot be computed, LimitError beyond the limits.
        """
        feeds = dict(feedset.feeds)
        threads = settings.threads or None
        plain = Interpreter(model, limits=settings.limits, threads=threads, progress=progress)
        for _ in range(settings.warmup):
            plain.run(None, feeds)
        wall: list[float] = []
        instrumented: list[float] = []
        recorders: list[Recorder] = []
        for done in range(settings.runs):
            recorder = Recorder()
            watched = plain.with_observers(recorder)
            wall.append(elapsed_us(lambda: plain.run(None, feeds)))
            instrumented.append(elapsed_us(lambda run=watched.run: run(None, feeds)))  # type: ignore[misc]
            recorders.append(recorder)
            progress(done + 1, settings.runs, "interpreting")
        kernels, samples = _table([recorder.records for recorder in recorders])
        times: Any = np.array(samples, np.float32)  # half the file, as with onnxruntime's
        run = Run(
            executor=EXECUTOR,
            batch=feedset.batch,
            inputs=described(feeds),
            wall_us=np.array(wall),
            instrumented_us=np.array(instrumented),
            samples=times.reshape(settings.runs, len(kernels)),
            bias_us=np.zeros(len(kernels)),  # the recorder stops the clock before it works
            kernels=kernels,
            notes=feedset.notes,
        )
        return Profiled(run)


def _table(
    runs: Sequence[Mapping[str, NodeRecord]],
) -> tuple[tuple[Kernel, ...], list[list[float]]]:
    """A kernel for each node that ran, and its time in each run; 0 where it did not run."""
    seen = {key: record for run in runs for key, record in run.items()}
    kernels = tuple(
        kernel(record, sum(run[key].calls for run in runs if key in run) / len(runs))
        for key, record in seen.items()
    )
    samples = [[run[key].time_us if key in run else 0.0 for key in seen] for run in runs]
    return kernels, samples


def kernel(record: NodeRecord, calls: float) -> Kernel:
    """A node as what ran, so many times in an inference."""
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


def described(feeds: Feeds) -> dict[str, str]:
    """The type of every input by name."""
    return {name: type_text(value) for name, value in feeds.items()}


executor: Executor[Model, FeedSet, ReferenceSettings] = _Reference()
