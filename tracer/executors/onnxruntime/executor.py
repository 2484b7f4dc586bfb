"""Runs a model under onnxruntime's profiler, alternating with runs that are not profiled."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tracer.containment import memory, signals
from tracer.executors.measuring import warm_up
from tracer.executors.onnxruntime import (
    all_outputs,
    calibration,
    chunk_plan,
    empty_run,
    feeding,
    node_names,
    outputs_returned,
    recording,
    sessions,
    turns,
)
from tracer.executors.onnxruntime.plain_session import PlainSession
from tracer.executors.onnxruntime.saved_graph import Folder, SavedGraph
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.executors.onnxruntime.stepping import Stepper
from tracer.executors.protocol import OptimizingExecutor, Profiled, Tensors
from tracer.executors.turns import Recorder
from tracer.graph import footprint
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.records.trace import Run
from tracer.support.progress import Progress, silent
from tracer.support.timing import elapsed_us

_UNCALIBRATED = (
    "no time was left to measure the profiler's overhead, which takes about a second and is then "
    "kept: node times have the overhead in them"
)


def _recorded(
    model: Model, feedset: FeedSet, settings: OrtSettings, folder: Folder, progress: Progress
) -> Run:
    factory = sessions.Factory(model, node_names.serialize(model), settings)
    if sessions.opens_slowly(model):
        progress(0, 0, "onnxruntime opens the model")
    plain = PlainSession(factory, feedset)
    warm_up(plain.run, settings, progress)
    began = time.perf_counter()
    results = plain.run()
    run_s = time.perf_counter() - began
    empty = empty_run.runner(model, feedset.feeds, results, settings)
    bias = calibration.in_time(settings.threads)
    record = recording.Recording(
        factory, feedset, folder.graph, progress, plain, empty, run_s,
        bias=bias or calibration.NONE,
        returning=outputs_returned.comparison(factory, feedset.feeds, results, plain, empty),
    )  # fmt: skip
    try:
        while missing := (done := record.measured()).missing(settings):
            if signals.ending():
                break
            warmup, count = chunk_plan.plan(done, settings)
            record.total = done.runs + missing
            record.add_profiled(warmup, count)
    except signals.ENDINGS:
        if not signals.ending() or not record.state.runs:
            raise
    with signals.noted():
        run = record.finish()
    return run if bias is not None else replace(run, notes=(*run.notes, _UNCALIBRATED))


@contextmanager
def _running(model: Model, feedset: FeedSet) -> Iterator[None]:
    """Says that the model runs inside the block, which may take memory in proportion to it.

    That is where nobody set a limit.
    """
    given = footprint.given_bytes(model, feedset.feeds.values()) if memory.is_default() else 0
    with sessions.running(model), memory.at_most(footprint.of_runtime(given)):
        yield


def _arrays(outputs: Sequence[Any]) -> Sequence[Any]:
    """Returns outputs whose memory is onnxruntime's as arrays of their own."""
    return [feeding.as_array(each) for each in outputs]


class _Onnxruntime:
    settings = OrtSettings

    def profile(
        self, model: Model, feedset: FeedSet, settings: OrtSettings, progress: Progress = silent
    ) -> Profiled:
        """Profiles `model` on `feedset`; every run of `settings` is recorded, or an error raised.

        A signal leaves the runs recorded until then, and `signals.ending` tells it.

        Raises ModelError or InputError for what onnxruntime refuses, UsageError for an absent
        provider, LimitError where one inference makes more events than the profiler holds.
        """
        model, folder = model.executed, Folder()
        with _running(model, feedset):
            run = _recorded(model, feedset, settings, folder, progress)
        return Profiled(run, SavedGraph(model, settings, run.kernels, folder))

    @contextmanager
    def ready(
        self, model: Model, feedset: FeedSet, settings: OrtSettings
    ) -> Iterator[Callable[[], float]]:
        """Opens a session and runs it once; inside the block a call times one inference, in µs."""
        model = model.executed
        with _running(model, feedset):
            factory = sessions.Factory(model, node_names.serialize(model), settings)
            run = feeding.prepared(factory, factory.open(), feedset.feeds)
            run()
            yield lambda: elapsed_us(run)

    @contextmanager
    def recording(
        self, model: Model, feedset: FeedSet, settings: OrtSettings
    ) -> Iterator[Recorder]:
        """Opens a session without and one with the profiler."""
        model = model.executed
        with _running(model, feedset), turns.recorder(model, feedset, settings) as recorder:
            yield recorder

    @contextmanager
    def stepping(self, model: Model, settings: OrtSettings) -> Iterator[Stepper]:
        """Opens a session; inside the block, each call runs one inference of any sizes."""
        model = model.executed
        with sessions.running(model):
            yield Stepper(model, settings)

    @contextmanager
    def outputs(
        self, model: Model, settings: OrtSettings
    ) -> Iterator[Callable[[Feeds], Sequence[Any]]]:
        """Opens a session; inside the block, each call runs it on feeds of any sizes."""
        model = model.executed
        with sessions.running(model):
            factory = sessions.Factory(model, node_names.serialize(model), settings)
            session = factory.open()
            yield lambda feeds: _arrays(feeding.prepared(factory, session, feeds)())

    def optimize(self, model: Model, feedset: FeedSet, settings: OrtSettings) -> SavedGraph:
        """Returns the graph that onnxruntime runs, from one inference; raises as `profile`."""
        model, folder = model.executed, Folder()
        with _running(model, feedset):
            kernels = recording.record_once(model, feedset, settings, folder.graph)
        return SavedGraph(model, settings, kernels, folder)

    def tensors(self, model: Model, feedset: FeedSet, settings: OrtSettings) -> Tensors:
        """Returns the optimised graph's outputs, and the tensors of nodes without optimisation.

        Both are computed on the provider of `settings`. Raises ModelError or InputError for what
        onnxruntime refuses.
        """
        model = model.executed
        with _running(model, feedset):
            by_name = all_outputs.tensors(model, feedset.feeds, settings)
            if settings.optimization == "none":
                return Tensors([by_name[value.name] for value in model.graph.output], by_name)
            session = sessions.Factory(model, node_names.serialize(model), settings).open()
            return Tensors(feeding.runner(model, session, feedset.feeds)(), by_name)


executor: OptimizingExecutor[Model, FeedSet, OrtSettings] = _Onnxruntime()
