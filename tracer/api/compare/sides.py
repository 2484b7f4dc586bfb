"""The sides of a comparison: traces, ONNX models, models of a framework, of any release."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from numpy.typing import NDArray

from tracer.api._framework import draw_inputs, known_specs
from tracer.api.compare import SideSettings
from tracer.api.profile import profile, profile_framework
from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.containment.calls import RemoteObject, RemoteProcess
from tracer.errors import InputError, locate_errors
from tracer.executors import registry
from tracer.executors.measuring import Open, Opener, timed
from tracer.executors.registry import Tensors
from tracer.executors.releases import PACKAGES, Release
from tracer.executors.settings import EagerSettings
from tracer.exporters.subject import load_source, names_code
from tracer.graph import stored_weights
from tracer.graph.model import Model
from tracer.graph.shape_inference import symbol_sizes
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.inputs.request import Request, on_sizes_that_run, request_for
from tracer.inputs.sizes import sizes_of
from tracer.records.trace import Trace, Turns
from tracer.support.types import FloatArray

DEFAULT, LEVEL, PROVIDER, REGISTER = "ort", "optimization", "provider", "register"

_WARMUP, _RUNS = 2, 5
"""Runs of the profile that tells which kernels a side has, and those before them."""

_INPUT_SETTINGS = {"inputs", "input_shape", "input_dtype", "seed"}
_PACE = {"precision", "sessions", "threads"}
_ONNX_SETTINGS = frozenset({"dims"} | _PACE | _INPUT_SETTINGS)
_CODE_SETTINGS = {"args", "weights"}
_FRAMEWORK_SETTINGS = frozenset(
    {"train", "backward", "device"} | _CODE_SETTINGS | _PACE | _INPUT_SETTINGS
)


@dataclass(frozen=True, slots=True)
class Runner:
    """Opens a side anew for each session: for undisturbed runs, whose blocks are measured.

    `recording` is for turns of undisturbed and of recorded runs. A block takes `block_us` at least.
    """

    whole_runs: Opener[FloatArray]
    recording: Opener[Turns]
    block_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """A saved trace."""

    label: str
    trace: Trace = field(repr=False)
    uses: ClassVar[frozenset[str]] = frozenset()
    kind: ClassVar[str] = "recorded traces"


@dataclass(frozen=True, slots=True)
class OnnxSide:
    """An ONNX model in the executor of this short name.

    `optimization`, `batch`, `feeds` and `threads` replace those of the settings. It runs on the
    `provider` of onnxruntime [default: the CPU], in a `release` [default: the installed one].
    """

    label: str
    model: Model = field(repr=False)
    source: Path
    executor: str = DEFAULT
    optimization: str | None = None
    provider: str | None = None
    batch: int | None = None
    feeds: Path | None = None
    threads: int | None = None
    release: Release | None = None
    kind: ClassVar[str] = "ONNX models"

    @property
    def uses(self) -> frozenset[str]:
        """Names of the settings that change its result, besides the batch size."""
        has_level = self.optimization is None and registry.has_setting(self.executor, LEVEL)
        level = {LEVEL} if has_level else set()
        options = {"provider_options"} if self.provider else set()
        options |= {REGISTER} if registry.has_setting(self.executor, REGISTER) else set()
        return _ONNX_SETTINGS | level | options | (_CODE_SETTINGS if self.is_exported else set())

    @property
    def is_exported(self) -> bool:
        """Whether the model is the export of code."""
        return names_code(str(self.source))

    @property
    def is_large(self) -> bool:
        """Whether the file has so many weights."""
        return stored_weights.is_large(self.model)

    def level(self, settings: SideSettings) -> str | None:
        """Returns the optimisation level; None in an executor without levels."""
        if not registry.has_setting(self.executor, LEVEL):
            return None
        return self.optimization or settings.optimization

    def run(self, settings: SideSettings) -> Trace:
        """Profiles the model, before the turns."""
        batch, dims = self._sizes(settings)
        feeds = self.feeds or settings.inputs
        if not feeds and batch is None and not dims and self.source.is_dir():
            feeds = next(iter(sorted(self.source.glob("test_data_set_*"))), None)
        with signals.keep_nothing():  # the turns that follow need all of it
            return profile(
                self.model, batch=batch, runs=_RUNS, warmup=_WARMUP, seed=settings.seed,
                threads=self.used_threads(settings), dims=dims, inputs=feeds,
                optimization=self.level(settings), **self._provided(settings),
                confirm=False,  # once for each of many rounds would take too long
                executor=self.executor,
            )  # fmt: skip

    def runner(self, settings: SideSettings) -> Runner:
        """Returns its runner on inputs of the first sizes that it takes."""
        chosen = self._running(settings)
        executor = registry.find_alternating(self.executor)
        attempt = registry.try_feeds(self.executor, self.model, chosen)

        def opens(feedset: FeedSet) -> None:
            if feedset.chosen and attempt is not None:
                attempt(feedset)
            elif feedset.chosen:
                with executor.ready(self.model, feedset, chosen):
                    pass

        feedset, _ = on_sizes_that_run(self.request(settings).first_batch(), opens)
        subject = (self.model, feedset, chosen)
        return Runner(
            partial(timed, partial(executor.ready, *subject)),
            partial(executor.recording, *subject),
        )

    def request(self, settings: SideSettings) -> Request:
        """Returns the request for the inputs that it runs on."""
        batch, dims = self._sizes(settings)
        feeds = self.feeds or settings.inputs
        return request_for(self.source, self.model, batch, dims, feeds, settings.seed)

    def feeds_that_run(self, settings: SideSettings) -> FeedSet:
        """Returns inputs, random ones at the first sizes that it takes."""
        request = self.request(settings)
        if (feedset := request.feeds()).chosen:
            feedset, _ = on_sizes_that_run(request, lambda feeds: self.tensors(feeds, settings))
        return feedset

    def tensors(self, feedset: FeedSet, settings: SideSettings) -> Tensors:
        """Returns the outputs, and all tensors, of one inference."""
        executor = registry.find_tensors(self.executor)
        return executor.tensors(self.model, feedset, self._running(settings))

    def outputs(
        self, settings: SideSettings
    ) -> AbstractContextManager[Callable[[Feeds], Sequence[Any]]]:
        """Opens the model; inside the block, each call returns the outputs of one inference."""
        opened: AbstractContextManager[Callable[[Feeds], Sequence[Any]]]
        opened = registry.find_tensors(self.executor).outputs(self.model, self._running(settings))
        return opened

    def _running(self, settings: SideSettings) -> Any:
        """Returns the settings of the executor; they do not depend on what is measured."""
        chosen = {"threads": self.used_threads(settings) or None, LEVEL: self.level(settings)}
        return registry.settings_for(self.executor, {**chosen, **self._provided(settings)})

    def _provided(self, settings: SideSettings) -> dict[str, Any]:
        """Returns libraries of operators, and the provider and its options where one is named."""
        own: dict[str, Any] = {}
        if registry.has_setting(self.executor, REGISTER):
            own[REGISTER] = settings.register
        if self.provider is not None:
            options = settings.provider_options or None
            own |= {PROVIDER: self.provider, "provider_options": options}
        return own

    def used_threads(self, settings: SideSettings) -> int:
        """Returns the threads per operator; 0 for all cores."""
        return settings.threads if self.threads is None else self.threads

    def _sizes(self, settings: SideSettings) -> tuple[int | None, Mapping[str, int]]:
        """Returns the batch and the open dimensions; shapes of the settings set them all."""
        batch = self.batch or settings.batch
        shapes = settings.shapes(batch)
        if shapes is None:
            return batch, settings.dims
        names = [value.name for value in self.model.inputs]
        if len(names) != len(shapes):
            raise InputError(
                f"the inputs of {self.model.name} are {', '.join(names) or 'none'}; {len(shapes)} "
                "shapes are given",
                "Give a shape for each: repeat --input-shape.",
            )
        named = dict(zip(names, shapes, strict=True))
        symbol_sizes(self.model, named)  # raises for what the model does not take
        return None, sizes_of(self.model, named)


@dataclass(frozen=True, slots=True)
class FrameworkSide:
    """A model run eagerly in its framework, on `arrays`; each run loads it again.

    `batch` and `device` replace those of the settings. Without arrays it runs on random inputs of
    its own `input_shape`. The `release` of the framework is the installed one by default.
    """

    label: str
    source: str
    framework: str
    batch: int | None = None
    arrays: Sequence[NDArray[Any]] | None = field(default=None, repr=False)
    device: str | None = None
    release: Release | None = None
    uses: ClassVar[frozenset[str]] = _FRAMEWORK_SETTINGS
    kind: ClassVar[str] = "models of a framework"
    is_large: ClassVar[bool] = False  # the weights are known only after the code has run

    def run(self, settings: SideSettings) -> Trace:
        """Profiles the model in its framework."""
        with locate_errors(self.source, once=True):
            return profile_framework(
                self.source, batch=self.batch or settings.batch, runs=_RUNS, warmup=_WARMUP,
                seed=settings.seed, threads=settings.threads, framework=self.framework,
                args=settings.args, weights=settings.weights_of(self.framework),
                train=settings.train, backward=settings.backward, device=self.on(settings),
                inputs=self.arrays,
            )  # fmt: skip

    def on(self, settings: SideSettings) -> str:
        """Returns the device that it runs on."""
        return self.device or settings.device

    def runner(self, settings: SideSettings) -> Runner:
        """Returns its runner, which loads the model again for each session."""
        return Runner(
            partial(timed, partial(self._opened, settings, is_recorded=False)),
            partial(self._opened, settings, is_recorded=True),
        )

    @contextmanager
    def _opened(self, settings: SideSettings, is_recorded: bool) -> Iterator[Any]:
        """Loads the model and opens it on its arrays, or on random ones of its `input_shape`."""
        eager = EagerSettings(
            threads=settings.threads, seed=settings.seed, device=self.on(settings),
            backward=settings.backward, train=settings.train,
        )  # fmt: skip
        executor, inputs = registry.find_alternating(self.framework), self.arrays
        opening = executor.recording if is_recorded else executor.ready
        with locate_errors(self.source, once=True):
            model = load_source(
                self.source, dict(settings.args), weights=settings.weights_of(self.framework),
                framework=self.framework, seed=settings.seed,
            )  # fmt: skip
            if inputs is None:
                specs = known_specs(model, self.source, None, "float32")
                inputs = draw_inputs(specs, self.batch or settings.batch, settings.seed)
            with opening(model, inputs, eager) as ready:
                yield ready


LiveSide: TypeAlias = OnnxSide | FrameworkSide
"""A side that is run now."""

NamedSide: TypeAlias = Recorded | LiveSide


_BLOCK_US = 2_000.0
"""Least time of a block: the caches are those of the process before when it begins."""


class _Remote:
    """What a side has the `process` do that it runs in, with a release of its own."""

    __slots__ = ()
    process: RemoteProcess

    @property
    def local(self) -> LiveSide:
        """The side as its process sees it."""
        kind = OnnxSide if isinstance(self, OnnxSide) else FrameworkSide
        return kind(**_values(self, kind))

    def run(self, settings: SideSettings) -> Trace:
        """Profiles the model."""
        side = self.local
        trace: Trace = self.process.call(type(side).run, side, settings)
        return trace

    def runner(self, settings: SideSettings) -> Runner:
        """Returns its runner, which is kept there: its inputs are chosen, or it is loaded, there.

        With one thread, all processes run on one CPU: who shares another with a busy program would
        be slower as long as it stays there, which a model beside itself was by 3 to 11 %.
        """
        side, process = self.local, self.process
        threads = side.used_threads(settings) if isinstance(side, OnnxSide) else settings.threads
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            process.call(os.sched_setaffinity, 0, {max(os.sched_getaffinity(0))})
        process.call(_keep_runner, side, settings)
        return Runner(
            partial(_remote_turns, process, "whole_runs"),
            partial(_remote_turns, process, "recording"),
            _BLOCK_US,
        )


@dataclass(frozen=True, slots=True)
class RemoteSide(_Remote, OnnxSide):
    """An ONNX model that runs in a `process` of its own, with its release of the runtime."""

    process: RemoteProcess = field(default_factory=RemoteProcess, repr=False)

    def tensors(self, feedset: FeedSet, settings: SideSettings) -> Tensors:
        """Returns the outputs, and all tensors, of one inference."""
        tensors: Tensors = self.process.call(OnnxSide.tensors, self.local, feedset, settings)
        return tensors

    @contextmanager
    def outputs(self, settings: SideSettings) -> Iterator[Callable[[Feeds], Sequence[Any]]]:
        """Opens the model; inside the block, each call returns the outputs of one inference."""
        with self.process.opened(OnnxSide.outputs, self.local, settings) as opened:
            yield partial(opened.call, "__call__")


@dataclass(frozen=True, slots=True)
class RemoteModule(_Remote, FrameworkSide):
    """A model of a framework that runs in a `process` of its own, with its release of it."""

    process: RemoteProcess = field(default_factory=RemoteProcess, repr=False)


def _values(side: object, kind: type[LiveSide]) -> dict[str, Any]:
    """Returns what a side has in the fields of a kind of sides."""
    return {each.name: getattr(side, each.name) for each in fields(kind)}


_kept: list[Runner] = []
"""In the process of a side: its runner."""


def _keep_runner(side: LiveSide, settings: SideSettings) -> None:
    _kept[:] = [side.runner(settings)]


def _open_kept(what: str) -> AbstractContextManager[Open[Any]]:
    opener: Opener[Any] = getattr(_kept[0], what)
    return opener()


@dataclass(frozen=True, slots=True)
class _RemoteTurns:
    """A side that is open in another process; its clock is read there."""

    there: RemoteObject

    def timed(self) -> float:
        """Makes a run and returns its time, µs."""
        return float(self.there.call("timed"))

    def take_turn(self, runs: int, rest: Callable[[], object]) -> None:
        """Makes a block of `runs`."""
        self.there.call("take_turn", runs, rest)

    def finish(self) -> Any:
        """Returns what the turns measured."""
        return self.there.call("finish")


@contextmanager
def _remote_turns(process: RemoteProcess, what: str) -> Iterator[_RemoteTurns]:
    with process.opened(_open_kept, what) as opened:
        yield _RemoteTurns(opened)


@contextmanager
def with_releases(sides: Sequence[NamedSide], progress: Progress) -> Iterator[Sequence[NamedSide]]:
    """Yields the sides; where one has a release, each of a runtime has a process of its own.

    So has the installed release: only processes that hold the same else are compared fairly.
    Raises the errors of `Release.folders`.
    """
    if not any(not isinstance(side, Recorded) and side.release for side in sides):
        yield sides
        return
    with ExitStack() as stack:
        yield [_with_process(side, stack, progress) for side in sides]


def _with_process(side: NamedSide, stack: ExitStack, progress: Progress) -> NamedSide:
    if isinstance(side, OnnxSide) and side.executor in PACKAGES:
        return in_own_process(side, stack, progress)
    if isinstance(side, FrameworkSide) and side.framework in PACKAGES:
        process = _process_of(side, stack, progress)
        process.call(os.dup2, 2, 1)  # what its code prints is no data
        return RemoteModule(**_values(side, FrameworkSide), process=process)
    return side


def in_own_process(side: OnnxSide, stack: ExitStack, progress: Progress) -> RemoteSide:
    """Returns a side of a runtime in a process of its own, which `stack` ends.

    Raises the errors of `Release.folders`.
    """
    process = _process_of(side, stack, progress)
    return RemoteSide(**_values(side, OnnxSide), process=process)


def _process_of(side: LiveSide, stack: ExitStack, progress: Progress) -> RemoteProcess:
    folders = side.release.folders(progress) if side.release else []
    return stack.enter_context(RemoteProcess(folders))
