"""What an executor is: it runs a model on inputs and returns the time of each kernel.

An executor is a package of `tracer.executors` with a module `executor`, in which `executor` meets
the `Executor` protocol; `registry` finds it by the name of its package. The subject is a graph
(`Model`) or a live model of a framework; each executor has settings of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from tracer.containment.activity import Progress
from tracer.executors.calls import OperatorRow
from tracer.executors.measuring import Recorder
from tracer.graph.model import Node
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.limits import Limits
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel, Run
from tracer.support.types import FloatArray

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
