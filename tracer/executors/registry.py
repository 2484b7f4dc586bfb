"""What an executor is, and the executors by name: each returns the time of each kernel of a run.

An executor is a package of `tracer.executors` with a module `executor`, in which `executor` meets
the `Executor` protocol; it has the name of its package. The subject is a graph (`Model`) or a live
model of a framework; each executor has settings of its own.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from tracer import executors
from tracer.containment.activity import Progress
from tracer.errors import UsageError
from tracer.executors.calls import OperatorRow
from tracer.executors.measuring import Recorder
from tracer.graph.model import Node
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.interpreter.fallback import Fallback
from tracer.limits import Limits
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel, Run
from tracer.support.types import FloatArray
from tracer.text import suggest

SubjectT = TypeVar("SubjectT", contravariant=True)
FeedsT = TypeVar("FeedsT", contravariant=True)
SettingsT = TypeVar("SettingsT")

Receive: TypeAlias = Callable[[FeedSet, Sequence[Any]], object]
"""Called with the feeds and the outputs of every batch."""


class OptimizedGraph(Protocol):
    """The graph that a runtime runs instead of the model; it lives as long as this object."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of the graph, in the order in which they first ran."""

    @property
    def comparable(self) -> bool:
        """Whether the tensors of the graph can be compared with the tensors of the model."""

    def match_tensors(
        self, feed_sets: Sequence[FeedSet], limits: Limits, progress: Progress
    ) -> Evidence:
        """Returns which tensors of the model equal each tensor of the graph on all `feed_sets`.

        Raises an error of `tracer.errors` where the tensors cannot be computed within `limits`.
        """

    def replay(self, feedset: FeedSet, kernels: Sequence[Kernel], progress: Progress) -> FloatArray:
        """Returns the time of a call of each kernel, run alone ÷ a whole run; NaN if impossible."""

    def replay_unfused(
        self, feedset: FeedSet, nodes: Sequence[Node], progress: Progress
    ) -> FloatArray:
        """Returns the same for nodes of the model, as they are before the runtime fuses them."""

    def unoptimized_kernels(self, feedset: FeedSet) -> tuple[Kernel, ...]:
        """Returns the kernels of a run of the model without optimisation, in order."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """A profile: the run, and the graph that ran where the runtime optimised the model.

    `operations` are the rows of the node table for a model without an ONNX graph.
    """

    run: Run
    optimized_graph: OptimizedGraph | None = None
    operations: tuple[OperatorRow, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """The work of a row in a run: flop of its products, bytes read and written.

    `operator` is the framework's name of the largest product, and `arithmetic` the type of its
    factors.
    """

    operator: str
    arithmetic: str
    flops: int
    bytes_read: int
    bytes_written: int

    def __add__(self, other: "OperatorWork") -> "OperatorWork":
        """Returns the work of both."""
        larger = max(self, other, key=lambda work: work.flops)
        return replace(
            larger,
            flops=self.flops + other.flops,
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
        )


Works: TypeAlias = Mapping[str, OperatorWork]
"""The work of rows, by their keys."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """The outputs of one inference in order, and every tensor of the main graph by name."""

    outputs: Sequence[Any]
    by_name: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stepped:
    """One inference: its time in µs, and its outputs as the runtime's own values, by name."""

    us: float
    outputs: Mapping[str, Any]


class Step(Protocol):
    """Runs inferences on one session, each on outputs of the one before."""

    def __call__(self, feeds: Feeds, carried: Mapping[str, Any]) -> Stepped:
        """Runs on arrays `feeds`, and on `carried`, the runtime's values by input name."""

    def nbytes(self, value: Any) -> int:
        """Returns the bytes that a value of an output takes."""


class Executor(Protocol[SubjectT, FeedsT, SettingsT]):
    """Runs a subject on feeds and measures it."""

    @property
    def settings(self) -> type[SettingsT]:
        """The frozen dataclass of the executor's settings."""

    def profile(
        self, subject: SubjectT, feeds: FeedsT, settings: SettingsT, progress: Progress
    ) -> Profiled:
        """Returns the measured run. Raises the errors of `tracer.errors`."""


@runtime_checkable
class AlternatingExecutor(Executor[SubjectT, FeedsT, SettingsT], Protocol):
    """An executor whose runs can take turns with those of another subject."""

    def ready(
        self, subject: SubjectT, feeds: FeedsT, settings: SettingsT
    ) -> AbstractContextManager[Callable[[], float]]:
        """Opens the subject anew, and runs it once, which may raise the errors of `profile`.

        Inside the block, each call makes a run and returns its time in µs.
        """

    def recording(
        self, subject: SubjectT, feeds: FeedsT, settings: SettingsT
    ) -> AbstractContextManager[Recorder]:
        """Opens the subject anew as `ready` does, for undisturbed and recorded runs in turns."""


@runtime_checkable
class TryingExecutor(Executor[SubjectT, FeedsT, SettingsT], Protocol):
    """An executor that opens a subject once to try feeds of several sizes."""

    def try_feeds(self, subject: SubjectT, settings: SettingsT) -> Callable[[FeedsT], object]:
        """Returns a function that makes one run on feeds; it raises the errors of `profile`."""


@runtime_checkable
class SteppingExecutor(Executor[SubjectT, FeedsT, SettingsT], Protocol):
    """An executor that feeds outputs back as inputs without leaving its own values."""

    def stepping(self, subject: SubjectT, settings: SettingsT) -> AbstractContextManager[Step]:
        """Opens the subject; inside the block, each call runs one inference."""


@runtime_checkable
class OptimizingExecutor(Executor[SubjectT, FeedsT, SettingsT], Protocol):
    """An executor that rewrites the graph before it runs."""

    def optimize(self, subject: SubjectT, feeds: FeedsT, settings: SettingsT) -> OptimizedGraph:
        """Returns the graph that runs, from one inference that is not measured."""

    def optimized_model(
        self, subject: SubjectT, settings: SettingsT
    ) -> AbstractContextManager[Any]:
        """Yields the graph that runs in the subject's place, under its name and hash."""


@runtime_checkable
class TensorExecutor(Executor[SubjectT, FeedsT, SettingsT], Protocol):
    """An executor that can return the tensors between the nodes of a graph."""

    def outputs(
        self, subject: SubjectT, settings: SettingsT
    ) -> AbstractContextManager[Callable[[Feeds], Sequence[Any]]]:
        """Opens the subject; inside the block, each call returns the outputs of one inference."""

    def tensors(self, subject: SubjectT, feeds: FeedsT, settings: SettingsT) -> Tensors:
        """Returns the outputs as `settings` set, and every tensor as nodes of the model have it."""


@runtime_checkable
class FrameworkExecutor(Executor[SubjectT, FeedsT, SettingsT], Protocol):
    """An executor of live models of a framework."""

    @property
    def compiled(self) -> Executor[SubjectT, FeedsT, SettingsT] | None:
        """The executor of the framework's compiler; None where the framework has none."""

    def parameters(self, subject: SubjectT) -> Iterator[tuple[str, int, bytes]]:
        """Yields name, number of elements and content of each parameter, a shared one once."""


@runtime_checkable
class CountingExecutor(FrameworkExecutor[SubjectT, FeedsT, SettingsT], Protocol):
    """An executor of live models that counts the work of their operators."""

    def work(self, subject: SubjectT, feeds: FeedsT, settings: SettingsT) -> Works:
        """Returns the work of each row, by the row's key, from a run that is not timed."""


REFERENCE, EMULATED = "reference", "emulated"
"""The executors of `tracer.interpret`, without and with narrow accumulators."""

SHORT_NAMES = {"ort": "onnxruntime", "openvino": "openvino", "interpreter": REFERENCE}
"""Names of executors in a comparison, as in `model.onnx@ort`."""


def names() -> list[str]:
    """Returns the names of all executors, with their packages installed or not."""
    packages = (m.name for m in pkgutil.iter_modules(executors.__path__) if m.ispkg)
    return sorted(p for p in packages if importlib.util.find_spec(f"tracer.executors.{p}.executor"))


def find(name: str) -> Executor[Any, Any, Any]:
    """Returns the executor of this name or short name. Raises UsageError for an unknown name."""
    name = SHORT_NAMES.get(name, name)
    if name not in names():
        hint = f"{suggest(name, names())}There are {', '.join(names())}."
        raise UsageError(f"there is no executor '{name}'", hint)
    module = importlib.import_module(f"tracer.executors.{name}.executor")
    return cast("Executor[Any, Any, Any]", module.executor)


def _finder(protocol: Any, ability: str) -> Callable[[str], Any]:
    """Returns what finds an executor by its name, or raises UsageError that it lacks `ability`."""

    def find_able(name: str) -> Any:
        executor = find(name)
        if not isinstance(executor, protocol):
            raise UsageError(f"the executor '{name}' does not {ability}")
        return executor

    return find_able


find_optimizing: Callable[[str], OptimizingExecutor[Any, Any, Any]] = _finder(
    OptimizingExecutor, "optimise graphs"
)
find_alternating: Callable[[str], AlternatingExecutor[Any, Any, Any]] = _finder(
    AlternatingExecutor, "take turns with others"
)
find_tensors: Callable[[str], TensorExecutor[Any, Any, Any]] = _finder(
    TensorExecutor, "return the tensors of nodes"
)
find_stepping: Callable[[str], SteppingExecutor[Any, Any, Any]] = _finder(
    SteppingExecutor, "run the phases of a language model"
)
find_framework: Callable[[str], FrameworkExecutor[Any, Any, Any]] = _finder(
    FrameworkExecutor, "run models of a framework"
)


def try_feeds(name: str, subject: Any, settings: Any) -> Callable[[Any], object] | None:
    """Returns a function that runs `subject` on feeds, opened once; None where `name` has none."""
    executor = find(name)
    return executor.try_feeds(subject, settings) if isinstance(executor, TryingExecutor) else None


def find_fallback(name: str, register: Sequence[str | Path] = ()) -> Fallback:
    """Returns what computes single nodes of the interpreter, with libraries of operators.

    The class `fallback` of the executor makes it. Raises UsageError where there is none.
    """
    kind = getattr(find(name), "fallback", None)
    if kind is None:
        raise UsageError(f"the executor '{name}' does not compute single nodes", "Take ort.")
    return cast("Fallback", kind(register))


def has_setting(name: str, setting: str) -> bool:
    """Returns whether the settings of the executor `name` have this field."""
    return any(field.name == setting for field in fields(find(name).settings))


def settings_for(name: str, values: Mapping[str, object]) -> Any:
    """Returns the settings of the executor `name`; a value None stands for its default.

    Raises UsageError for a value that the executor has no field for, or that it refuses.
    """
    kind = find(name).settings
    chosen = {field: value for field, value in values.items() if value is not None}
    unknown = chosen.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise UsageError(
            f"the executor '{name}' has no setting {', '.join(sorted(unknown))}",
            f"Its settings are {', '.join(field.name for field in fields(kind))}.",
        )
    return kind(**chosen)
