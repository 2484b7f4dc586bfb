"""The reference interpreter: any ONNX graph, node by node, in numpy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

from tracer.errors import InputError, UsageError
from tracer.graph import loading, tensor_type
from tracer.graph.model import Model, Node
from tracer.interpreter.execution import Execution
from tracer.interpreter.kernel_loading import announced
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.interpreter.observers import Observer
from tracer.interpreter.plan import Around, Planner
from tracer.interpreter.registry import Operator, Registry
from tracer.interpreter.values import Array, Value
from tracer.limits import Limits, enforced
from tracer.support.types import dtype_text


class Interpreter:
    """Executes a model with numpy semantics; the same inputs give the same bits.

    `operators` are the caller's own and win over all others; `around` may put another kernel in
    the place of any node's (see `tracer.accumulators`); `observers` see every node;
    `limits` bound each run; `threads` of None is as many as BLAS is set to use; `progress` is
    told when compiled kernels are loaded. Prepares every node once: raises ModelError for an
    operator that nothing implements, and for attributes or weights that are broken.
    """

    def __init__(
        self,
        model: Model | onnx.ModelProto | str | Path,
        *,
        operators: Iterable[Operator] = (),
        around: Around | None = None,
        observers: Iterable[Observer] = (),
        limits: Limits | None = None,
        threads: int | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self.model = _model(model)
        self.limits = limits or Limits()
        self.peak_bytes: int | None = None
        self._threads = threads
        self._memory: list[buffer_pool.Pool] = []
        self._progress = progress
        self._observers = tuple(observers)
        folder = self.model.path.parent if self.model.path is not None else None
        with enforced(self.limits):
            self._plan = Planner(self.model, Registry(operators), folder, around).plan()

    def observed(self, *observers: Observer) -> Interpreter:
        """The same prepared model, with these observers in place of its own."""
        other = copy.copy(self)
        other._observers = observers
        return other

    def on(self, threads: int) -> Interpreter:
        """The same prepared model, run on so many threads."""
        other = copy.copy(self)
        other._threads = threads
        return other

    def get_inputs(self) -> tuple[onnx.ValueInfoProto, ...]:
        """The inputs to feed, as the model declares them."""
        return self.model.inputs

    def get_outputs(self) -> tuple[onnx.ValueInfoProto, ...]:
        """The outputs, as the model declares them."""
        return tuple(self.model.graph.output)

    @property
    def steps(self) -> tuple[Node, ...]:
        """The nodes of the main graph in the order they run."""
        return tuple(step.node for step in self._plan.steps)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Value]) -> list[Value]:
        """Outputs by name (None: all of them, in order) for `feeds` by input name.

        Afterwards `peak_bytes` tells the most bytes that inputs, outputs and intermediate values
        took at a time. Raises InputError for feeds that do not fit the model, ModelError for a
        node that cannot be computed, LimitError for a run beyond its limits.
        """
        wanted = self._wanted(output_names)
        given = self._feeds(feeds)
        with self._running() as execution:
            outputs = execution.graph(self._plan, given, None)
        made = dict(zip(self._plan.outputs, outputs, strict=True))
        return [_own(made[name]) for name in wanted]

    def begin(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        """The values alive before the first step; raises as `run` does."""
        return dict(zip(self._plan.inputs, self._feeds(feeds), strict=True))

    def advance(
        self, alive: Mapping[str, Value], start: int, stop: int | None = None
    ) -> dict[str, Value]:
        """The values alive before step `stop` (None: after the last), from those before `start`.

        Outputs of the graph stay alive. What is returned may be kept, and used again to go on
        from there; it must not be written into.
        """
        last = len(self._plan.steps) if stop is None else stop
        with self._running() as execution:
            return execution.part(self._plan, alive, start, last)

    def outputs(self, alive: Mapping[str, Value]) -> list[Value]:
        """The outputs of the graph among the values alive after the last step."""
        return [
            alive[name] if name in alive else self._plan.weights[name]
            for name in self._plan.outputs
        ]

    @contextmanager
    def _running(self) -> Iterator[Execution]:
        with (
            enforced(self.limits) as budget,
            parallel.threads(self._threads),
            announced(self._progress),
            buffer_pool.pooled(self._memory),
        ):
            yield Execution(self.model, self._observers, budget)
        self.peak_bytes = budget.peak

    def _wanted(self, names: Sequence[str] | None) -> Sequence[str]:
        unknown = sorted(set(names or ()) - set(self._plan.outputs))
        if unknown:
            raise UsageError(
                f"{self.model.name} has no output '{unknown[0]}'",
                f"Its outputs: {', '.join(self._plan.outputs)}.",
            )
        return self._plan.outputs if names is None else names

    def _feeds(self, feeds: Mapping[str, Value]) -> list[Value]:
        declared = {value.name: value for value in self.model.inputs}
        unknown = sorted(set(feeds) - set(declared))
        if unknown:
            raise InputError(
                f"{self.model.name} has no input '{unknown[0]}'",
                f"Its inputs: {', '.join(declared) or 'none'}.",
            )
        missing = [n for n, v in declared.items() if n not in feeds and not _optional(v)]
        if missing:
            raise InputError(f"{self.model.name}: input '{missing[0]}' is not given")
        return [self._fed(value, feeds.get(name)) for name, value in declared.items()]

    def _fed(self, declared: onnx.ValueInfoProto, value: Value) -> Value:
        type_ = tensor_type.from_type_proto(declared.type)
        if type_ is None:
            return value
        array = _array(value)
        wanted = f"input '{declared.name}' of {self.model.name} is {type_}"
        given = tensor_type.TensorType(dtype_text(array), array.shape)
        if given.dtype != type_.dtype:
            raise InputError(f"{wanted}, but {given} is given")
        if type_.shape is not None and not _fits(array.shape, type_.shape):
            raise InputError(f"{wanted}, but {given} is given")
        return array


def _model(model: Model | onnx.ModelProto | str | Path) -> Model:
    if isinstance(model, Model):
        return model
    if isinstance(model, str | Path):
        return loading.load(model)
    return loading.from_proto(model)


def _optional(value: onnx.ValueInfoProto) -> bool:
    return bool(value.type.WhichOneof("value") == "optional_type")


def _array(value: Value) -> Array:
    """A read-only view, so that no operator can write into what the caller owns."""
    array = np.asarray(value)
    if array.dtype.kind in "US":
        array = array.astype(object)
    array = array.view()
    array.flags.writeable = False
    return array


def _own(value: Value) -> Value:
    """An output the caller may write into: not a view of a weight, a feed or itself."""
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return value.copy()
    return value


def _fits(shape: tuple[int, ...], declared: tuple[tensor_type.Dim, ...]) -> bool:
    return len(shape) == len(declared) and all(
        given == dim or not isinstance(dim, int) for given, dim in zip(shape, declared, strict=True)
    )
