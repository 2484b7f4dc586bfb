"""Observers, which are called before and after every node: the protocol, and those that record.

`Recorder` keeps times, types, values and differences, `TensorRecorder` tensors. `Isolation` gives
each node the inputs that another runtime computed.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np

from tracer.graph.model import Model, Node
from tracer.graph.operators import draws_numbers, precisions
from tracer.graph.tensor_type import TensorType, Types
from tracer.interpreter.compiled_code import clock_ns
from tracer.interpreter.values import Value
from tracer.support.tolerance import Difference, Precision, Tolerance, compare, worst
from tracer.support.types import dtype_text


class Observer(Protocol):
    """Is called around every node of a run, including nodes in bodies, and may replace outputs.

    Nodes of an operator that is expanded by its function body are included; their keys follow the
    operator's own key (`Mish_3/Softplus_0`).
    """

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Called with the inputs, which must not be changed; an omitted input is None."""
        return  # not abstract: a subclass may leave it out

    def after(
        self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Sequence[Value] | None:
        """Called with the outputs; returns as many values to replace them, or None."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Minimum, maximum and mean of the finite values of a tensor; None if no value is finite."""

    minimum: float | None
    maximum: float | None
    mean: float | None
    nan: int
    inf: int


@dataclass(slots=True)
class NodeRecord:
    """The calls of one node in one inference; a node in a loop's body is called several times.

    `time_us` is the node's own time, without the nodes of its bodies. `types` has how many calls
    had these types of inputs and outputs. Statistics are of the first output of the last call, if
    it is a tensor of numbers.
    `difference` is the worst of the outputs, if the reference has one of them.
    """

    node: Node
    calls: int = 0
    time_us: float = 0.0
    types: Counter[tuple[Types, Types]] = field(default_factory=Counter)
    statistics: Statistics | None = None
    difference: Difference | None = None


@dataclass(slots=True)
class Recorder:
    """An observer with records by node key, in the order of first calls; `clock` counts ns.

    Without `describe` it records times and calls alone. `expected` are tensors of the main graph
    by name, computed elsewhere from the same feeds; outputs are compared within `tolerance`, at the
    `precisions` of the tensors. `own_us` is the time of describing and comparing, which is in no
    node's time.
    """

    describe: bool = True
    expected: Mapping[str, Value] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)
    precisions: Mapping[str, Precision] = field(default_factory=dict)
    clock: Callable[[], int] = clock_ns
    records: dict[str, NodeRecord] = field(default_factory=dict)
    own_us: float = 0.0
    _open: list[list[int]] = field(default_factory=list)

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Starts the clock of `node`."""
        entered = self.clock()
        self._open.append([entered, 0, entered])
        self._open[-1][0] = self.clock()

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Stops the clock of `node`, then describes its values and charges the whole to no node."""
        ended = self.clock()
        began, inside, entered = self._open.pop()
        record = self.records.setdefault(node.key, NodeRecord(node))
        record.calls += 1
        record.time_us += (ended - began - inside) / 1e3
        if self.describe:
            record.types[_types(inputs), _types(outputs)] += 1
            record.statistics = statistics(outputs[0]) if outputs else None
            differences = [
                compare(value, self.expected[name], self.tolerance, self.precisions.get(name))
                for name, value in named_tensors(node, outputs)
                if name in self.expected
            ]
            record.difference = worst(differences) if differences else None
        left = self.clock()
        self.own_us += (left - ended) / 1e3
        if self._open:
            self._open[-1][1] += left - entered


class TensorRecorder(Observer):
    """An observer that keeps the tensors of the main graph; of these `names` alone, if set."""

    def __init__(self, names: Container[str] | None = None) -> None:
        self._names = names
        self.tensors: dict[str, Value] = {}

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keeps the outputs of the node."""
        named = named_tensors(node, outputs)
        self.tensors.update(
            named if self._names is None else ((n, v) for n, v in named if n in self._names)
        )


class Isolation(Observer):
    """An observer that replaces what a node computes by what the reference has for it.

    So each node of the main graph reads values of the reference, and its difference is what it adds
    itself, without the rounding of the nodes before it. `expected` are tensors by name; a tensor
    that it lacks goes on as computed, and `others` tell its type. `products` as in `precisions`.
    `differences` are by node key; random operators have none.
    """

    def __init__(
        self,
        model: Model,
        expected: Mapping[str, Value],
        tolerance: Tolerance,
        products: Mapping[str, float] = MappingProxyType({}),
        others: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:
        self._expected = expected
        self._tolerance = tolerance
        self._precisions = precisions(model, {**others, **expected}, expected, products)
        self.differences: dict[str, Difference] = {}

    def after(
        self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Sequence[Value]:
        """Compares the outputs with the reference, and returns those of the reference."""
        replaced, differences = list(outputs), []
        for place, (name, value) in enumerate(named_tensors(node, outputs)):
            theirs = self._expected.get(name)
            if theirs is None:
                continue
            exact = self._precisions.get(name)
            differences.append(compare(value, theirs, self._tolerance, exact))
            alike = (
                isinstance(value, np.ndarray)
                and isinstance(theirs, np.ndarray)
                and value.dtype == theirs.dtype
            )
            if alike:  # a sequence may hold what numpy lacks
                replaced[place] = theirs
        if differences and not draws_numbers(node.op_type):
            self.differences[node.key] = worst(differences)
        return replaced


def named_tensors(node: Node, outputs: Sequence[Value]) -> Iterable[tuple[str, Value]]:
    """Returns outputs by name, of a node of the main graph: names in bodies may repeat."""
    return zip(() if node.scope.path else node.outputs, outputs, strict=False)


def statistics(value: Value) -> Statistics | None:
    """Returns the statistics of a tensor of real numbers; None for all other values."""
    if not isinstance(value, np.ndarray) or value.dtype.hasobject or value.dtype.kind == "c":
        return None
    wide = value.astype(np.float64)
    is_finite = np.isfinite(wide)
    nan = int(np.isnan(wide).sum())
    finite = wide if is_finite.all() else wide[is_finite]
    inf = wide.size - finite.size - nan
    if not finite.size:
        return Statistics(None, None, None, nan, inf)
    return Statistics(float(finite.min()), float(finite.max()), float(finite.mean()), nan, inf)


def _types(values: Sequence[Value]) -> Types:
    return tuple(
        TensorType(dtype_text(value), value.shape)
        for value in values
        if isinstance(value, np.ndarray)
    )
