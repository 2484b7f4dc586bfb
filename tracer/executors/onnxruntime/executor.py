"""Runs a model under onnxruntime's profiler, alternating with runs that are not profiled."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tracer.containment import memory, signals
from tracer.containment.activity import Progress, silent
from tracer.errors import LimitError
from tracer.executors.measuring import Recorder, RunTimes, warm_up
from tracer.executors.onnxruntime import (
    all_outputs,
    calibration,
    feeding,
    fusion_check,
    kernel_nodes,
    profile_events,
    recording,
    replay,
    sessions,
)
from tracer.executors.registry import OptimizingExecutor, Profiled, Stepped, Tensors
from tracer.executors.settings import OrtSettings
from tracer.graph import stored_weights
from tracer.graph.model import Model, Node
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.limits import Limits, size_text
from tracer.records import environment
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel, Run
from tracer.support.measurements import elapsed_us
from tracer.support.temporary import TemporaryFolder
from tracer.support.types import FloatArray

_ELEMENT_BYTES = 8
"""All tensors are held at once and compared as float64."""

_MANY = 5_000
"""Nodes, inputs and outputs that a session opens in half a second. 100,000 nodes in a chain take 5
seconds; the time grows with the square of the readers of one tensor, and of the outputs."""

_UNCALIBRATED = (
    "no time was left to measure the profiler's overhead, which takes about a second and is then "
    "kept: node times have the overhead in them"
)


class _Onnxruntime:
    settings = OrtSettings
    fallback = all_outputs.NodeKernels
    optimized_model = staticmethod(sessions.optimized_model)

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
            run = _record(model, feedset, settings, folder.graph, progress)
        return Profiled(run, _Optimized(model, settings, run.kernels, folder))

    @contextmanager
    def ready(
        self, model: Model, feedset: FeedSet, settings: OrtSettings
    ) -> Iterator[Callable[[], float]]:
        model = model.executed
        with _running(model, feedset):
            factory = sessions.Factory.of(model, settings)
            run = feeding.prepared(factory, factory.open(), feedset.feeds)
            run()
            yield lambda: elapsed_us(run)

    def try_feeds(self, model: Model, settings: OrtSettings) -> Callable[[FeedSet], object]:
        """Returns a function that makes one run on feeds, in a session that the first run opens.

        The session is open until a run succeeds.
        """
        model = model.executed
        opened: tuple[sessions.Factory, Any] | None = None

        def run(feedset: FeedSet) -> None:
            nonlocal opened
            with _running(model, feedset):
                if opened is None:
                    factory = sessions.Factory.of(model, settings)
                    opened = factory, factory.open()
                feeding.prepared(*opened, feedset.feeds)()
            opened = None

        return run

    @contextmanager
    def recording(
        self, model: Model, feedset: FeedSet, settings: OrtSettings
    ) -> Iterator[Recorder]:
        """Opens a session without and one with the profiler."""
        model = model.executed
        with _running(model, feedset), turn_recorder(model, feedset, settings) as recorder:
            yield recorder

    @contextmanager
    def stepping(self, model: Model, settings: OrtSettings) -> "Iterator[Stepper]":
        model = model.executed
        with sessions.running(model):
            yield Stepper(model, settings)

    @contextmanager
    def outputs(
        self, model: Model, settings: OrtSettings
    ) -> Iterator[Callable[[Feeds], Sequence[Any]]]:
        model = model.executed
        with sessions.running(model):
            factory = sessions.Factory.of(model, settings)
            session = factory.open()

            def run(feeds: Feeds) -> Sequence[Any]:
                return [
                    feeding.as_array(each) for each in feeding.prepared(factory, session, feeds)()
                ]

            yield run

    def optimize(self, model: Model, feedset: FeedSet, settings: OrtSettings) -> "_Optimized":
        model, folder = model.executed, Folder()
        with _running(model, feedset):
            kernels = recording.record_once(model, feedset, settings, folder.graph)
        return _Optimized(model, settings, kernels, folder)

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
            session = sessions.Factory.of(model, settings).open()
            return Tensors(feeding.runner(model, session, feedset.feeds)(), by_name)


executor: OptimizingExecutor[Model, FeedSet, OrtSettings] = _Onnxruntime()


def _record(
    model: Model, feedset: FeedSet, settings: OrtSettings, saved: Path, progress: Progress
) -> Run:
    factory = sessions.Factory.of(model, settings)
    if len(model.nodes) + len(model.inputs) + len(model.graph.output) > _MANY:
        progress(0, 0, "onnxruntime opens the model")
    plain = feeding.PlainSession(factory, feedset)
    warm_up(plain.run, settings, progress)
    began = time.perf_counter()
    results = plain.run()
    run_s = time.perf_counter() - began
    empty = feeding.empty_runner(model, feedset.feeds, results, settings)
    bias = calibration.in_time(settings.threads)
    record = recording.Recording(
        factory, feedset, saved, progress, plain, empty, run_s,
        bias=bias or calibration.NONE,
        returning=feeding.compare_returning(factory, feedset.feeds, results, plain, empty),
    )  # fmt: skip
    try:
        while missing := (done := record.measured()).missing(settings):
            if signals.ending():
                break
            warmup, count = recording.plan_session(done, settings)
            record.total = done.runs + missing
            record.add_profiled(warmup, count)
        if not signals.ending():
            record.add_device_times()
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
    given = stored_weights.given_bytes(model, feedset.feeds.values()) if memory.is_default() else 0
    with sessions.running(model), memory.at_most(stored_weights.memory_of_runtime(given)):
        yield


@contextmanager
def turn_recorder(model: Model, feedset: FeedSet, settings: OrtSettings) -> Iterator[Recorder]:
    """Opens a session and a profiled one, and runs both once.

    Where both do not fit in memory beside each other, the profiled one replaces the other in the
    first turn, which must be the only one. The profiler writes its events when it ends, in the
    order in which the runs were made: so the runs of a turn are told apart by their number.
    """
    factory = sessions.Factory.of(model, settings)
    plain = feeding.PlainSession(factory, feedset)
    empty = feeding.empty_runner(model, feedset.feeds, plain.run(), settings)
    folder = Folder()
    profiled = _ProfiledSession(plain, folder.path)
    if not plain.closes_for_profiler:
        profiled.record(0)
    yield Recorder(
        plain=lambda: elapsed_us(plain.run),
        record=profiled.record,
        read=profiled.read,
        empty=None if empty is None else lambda: elapsed_us(empty),
    )


@dataclass
class _ProfiledSession:
    """A session under the profiler; `counted` tells which of its runs count."""

    plain: feeding.PlainSession
    folder: Path
    counted: list[bool] = field(default_factory=list)
    session: Any = None
    run: Callable[[], object] | None = None

    def record(self, runs: int) -> None:
        """Makes `runs` that count, after one that fills caches and wakes threads."""
        if self.run is None:
            if self.plain.closes_for_profiler:
                self.plain.close()
            factory, feeds = self.plain.factory, self.plain.feedset.feeds
            self.session = factory.open(profile=self.folder / "profile")
            self.run = feeding.prepared(factory, self.session, feeds)
        for index in range(1 + runs):
            feeding.tidy_memory()
            self.run()
            self.counted.append(index > 0)

    def read(self) -> RunTimes:
        """Reads and deletes the profile."""
        labels = profile_events.Labels()
        table = profile_events.read_ended(self.session, labels)[1]
        rows = np.flatnonzero(self.counted[: len(table.dur)])
        model = self.plain.factory.model
        names = [kernel_nodes.original(model, label.name) for label in labels.kernels]
        return RunTimes(names, table.self_us[rows], table.dur[rows].astype(np.float64))


class Stepper:
    """One session on a model; a call runs one inference, on outputs of calls before: a cache.

    Values stay onnxruntime's own and are bound to the session before the clock starts: a step
    neither copies the cache to Python and back, nor waits for Python to look at it.
    """

    def __init__(self, model: Model, settings: OrtSettings) -> None:
        self._model = model
        self._session = sessions.Factory.of(model, settings).open()
        self._memory = feeding.memory_of(settings, self._session)
        self._names = [value.name for value in model.graph.output]
        self._options = feeding.run_options()

    def __call__(self, feeds: Feeds, carried: Mapping[str, Any]) -> Stepped:
        """Runs on arrays `feeds` and on `carried`, outputs of earlier calls by input name.

        Raises InputError for what onnxruntime refuses.
        """
        inputs = {**feeding.values(self._model, feeds, self._memory), **carried}
        binding = feeding.bind(self._session, inputs, self._memory)
        run = sessions.translated(
            self._model, lambda: self._session.run_with_iobinding(binding, self._options)
        )
        took = elapsed_us(run)
        return Stepped(took, dict(zip(self._names, binding.get_outputs(), strict=True)))

    @staticmethod
    def nbytes(value: ort.OrtValue) -> int:
        """Returns the bytes that a value of an output takes."""
        return int(value.tensor_size_in_bytes())


class Folder(TemporaryFolder):
    """The folder of a saved graph and of profiles."""

    @property
    def graph(self) -> Path:
        """The file of the optimised graph; its weights lie in a file beside it."""
        return self.path / sessions.FILE


@dataclass(frozen=True, slots=True)
class _Optimized:
    """The graph in `folder` that onnxruntime runs for `model` with `settings`."""

    model: Model
    settings: OrtSettings
    kernels: tuple[Kernel, ...]
    folder: Folder

    @property
    def comparable(self) -> bool:
        """Whether the graph is optimised for the CPU, on which its tensors can be computed."""
        return environment.is_cpu(self.settings.provider)

    def match_tensors(
        self, feed_sets: Sequence[FeedSet], limits: Limits, progress: Progress
    ) -> Evidence:
        """Returns which tensors of the model equal each tensor of the graph on all `feed_sets`.

        `limits` are limits of the interpreter; the tensors of the graph may together take as much
        memory again. Raises LimitError beyond that, and the errors of onnxruntime and interpreter.
        """
        types = [kind for kernel in self.kernels for kind in kernel.output_types]
        held = len(feed_sets) if stored_weights.is_large(self.model) else 1
        need = held * sum(_ELEMENT_BYTES * (kind.size or 0) for kind in types)
        most = limits.in_proportion(None).live_bytes or 0
        if need > most:
            raise LimitError(
                f"all tensors of the optimised graph take {size_text(need)} at once, and at most "
                f"{size_text(most)} are compared",
                "Set a smaller batch or dim.",
            )
        feeds = [feedset.feeds for feedset in feed_sets]
        settings = OrtSettings(threads=self.settings.threads, register=self.settings.register)
        return fusion_check.evidence(
            self.model, self.folder.graph, feeds, settings, limits, progress
        )

    def replay(self, feedset: FeedSet, kernels: Sequence[Kernel], progress: Progress) -> FloatArray:
        pieces = replay.cut_kernels(self.model, self.folder.graph, feedset.feeds, kernels)
        return replay.shares(self.model, pieces, feedset, self.settings, progress)

    def replay_unfused(
        self, feedset: FeedSet, nodes: Sequence[Node], progress: Progress
    ) -> FloatArray:
        pieces = replay.cut_nodes(self.model, feedset.feeds, nodes)
        return replay.shares(self.model, pieces, feedset, self.settings, progress)

    def unoptimized_kernels(self, feedset: FeedSet) -> tuple[Kernel, ...]:
        """Returns the kernels of one run of the model without optimisation, on the CPU.

        There every node is a kernel, whatever other providers compile.
        """
        settings = replace(self.settings, optimization="none", provider="cpu", provider_options={})
        folder = Folder()
        with sessions.running(self.model):
            return recording.record_once(self.model, feedset, settings, folder.graph)
