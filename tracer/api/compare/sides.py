"""The sides of a comparison: recorded traces, ONNX models, models of a framework; how each runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from numpy.typing import NDArray

from tracer.api._assembly import configured
from tracer.api.compare.settings import SideSettings
from tracer.api.framework import profile_framework
from tracer.api.profile import profile
from tracer.errors import InputError, TracerError
from tracer.executors import registry
from tracer.executors.protocol import Tensors
from tracer.graph.model import Model
from tracer.graph.shape_inference import symbol_sizes
from tracer.inputs.dims import sizes_of
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import Request, on_sizes_that_run, request_for
from tracer.records.trace import Trace
from tracer.support.progress import Progress, silent

DEFAULT, LEVEL = "ort", "optimization"


_INPUT_SETTINGS = {"feeds", "input_shape", "input_dtype", "seed"}
_ONNX_SETTINGS = frozenset({"dims", "warmup", "threads"} | _INPUT_SETTINGS)
_FRAMEWORK_SETTINGS = frozenset(
    {"arguments", "weights", "warmup", "threads", "train", "backward", "device"} | _INPUT_SETTINGS
)


class LiveSide(Protocol):
    """A side that is run now."""

    @property
    def label(self) -> str:
        """Its name in the results."""

    def run(
        self, runs: int | None, settings: SideSettings, progress: Progress | None = None
    ) -> Trace:
        """Returns a trace of one run of `runs` inferences [default: the executor's]."""

    def again(self, trace: Trace, runs: int, settings: SideSettings) -> Trace:
        """Returns a trace of a further run, after one that `run` returned."""


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

    `optimization`, `batch` and `feeds` replace those of the settings.
    """

    label: str
    model: Model = field(repr=False)
    source: Path
    executor: str = DEFAULT
    optimization: str | None = None
    batch: int | None = None
    feeds: Path | None = None
    kind: ClassVar[str] = "ONNX models"

    @property
    def uses(self) -> frozenset[str]:
        """Names of the settings that change its result, besides the batch size."""
        optimized = self.optimization is None and registry.has_setting(self.executor, LEVEL)
        return _ONNX_SETTINGS | {LEVEL} if optimized else _ONNX_SETTINGS

    def level(self, settings: SideSettings) -> str | None:
        """Returns the optimisation level; None in an executor without levels."""
        if not registry.has_setting(self.executor, LEVEL):
            return None
        return self.optimization or settings.optimization

    def run(
        self, runs: int | None, settings: SideSettings, progress: Progress | None = None
    ) -> Trace:
        """Profiles the model."""
        batch, dims = self._sizes(settings)
        return profile(
            self.model,
            **_measuring(batch, runs, settings),
            dims=dims,
            feeds=self.feeds or _feeds(self.source, settings, batch, dims),
            optimization=self.level(settings),
            confirm=False,  # once for each of many rounds would take too long
            progress=progress,
            executor=self.executor,
        )

    def again(self, trace: Trace, runs: int, settings: SideSettings) -> Trace:
        """Returns a further run with the node table of `trace`, which each run would make anew."""
        asked = {"runs": runs, "warmup": settings.warmup, **self._running(settings)}
        chosen = registry.settings_for(self.executor, asked)
        executor = registry.find(self.executor)
        _, profiled = on_sizes_that_run(
            self.request(settings).cut(),
            lambda feeds: executor.profile(self.model, feeds, chosen, silent),
        )
        measured = {**trace.settings, "runs": runs}
        return replace(trace, runs=(configured(profiled.run, chosen),), settings=measured)

    def request(self, settings: SideSettings) -> Request:
        """Returns the request for the inputs that it runs on."""
        batch, dims = self._sizes(settings)
        feeds = self.feeds or settings.feeds
        return request_for(self.source, self.model, batch, dims, feeds, settings.seed)

    def tensors(self, feedset: FeedSet, settings: SideSettings) -> Tensors:
        """Returns the outputs, and all tensors, of one inference."""
        chosen = registry.settings_for(self.executor, self._running(settings))
        return registry.find_tensors(self.executor).tensors(self.model, feedset, chosen)

    def _running(self, settings: SideSettings) -> dict[str, object]:
        """Returns the settings of the executor that do not depend on what is measured."""
        return {"threads": settings.threads or None, LEVEL: self.level(settings)}

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

    `batch` as in OnnxSide. Without arrays it runs on random inputs of its own `input_shape`.
    """

    label: str
    source: str
    framework: str
    batch: int | None = None
    arrays: Sequence[NDArray[Any]] | None = field(default=None, repr=False)
    uses: ClassVar[frozenset[str]] = _FRAMEWORK_SETTINGS
    kind: ClassVar[str] = "models of a framework"

    def run(
        self, runs: int | None, settings: SideSettings, progress: Progress | None = None
    ) -> Trace:
        """Profiles the model in its framework."""
        with naming_errors(self.source):
            return profile_framework(
                self.source,
                **_measuring(self.batch or settings.batch, runs, settings),
                framework=self.framework,
                args=settings.arguments,
                weights=settings.weights_of(self.framework),
                train=settings.train,
                backward=settings.backward,
                device=settings.device,
                progress=progress,
                inputs=self.arrays,
            )

    def again(self, trace: Trace, runs: int, settings: SideSettings) -> Trace:
        """Profiles the model once more: its node table is what the framework ran."""
        return self.run(runs, settings)


@contextmanager
def naming_errors(source: str) -> Iterator[None]:
    """Names the code of a side in errors of the block that do not."""
    try:
        yield
    except TracerError as error:
        if source in error.what:
            raise
        raise type(error)(f"{source}: {error.what}", error.hint) from error


NamedSide: TypeAlias = Recorded | OnnxSide | FrameworkSide


def _measuring(batch: int | None, runs: int | None, settings: SideSettings) -> dict[str, Any]:
    """Returns the arguments that models of all kinds have."""
    shared = {name: getattr(settings, name) for name in ("seed", "warmup", "threads")}
    return {"batch": batch, "runs": runs, **shared}


def _feeds(
    source: Path, settings: SideSettings, batch: int | None, dims: Mapping[str, int]
) -> Path | None:
    """Returns the feeds of the settings, else the test data in a model's folder."""
    if settings.feeds or batch is not None or dims or not source.is_dir():
        return settings.feeds
    return next(iter(sorted(source.glob("test_data_set_*"))), None)
