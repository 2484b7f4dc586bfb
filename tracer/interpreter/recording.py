"""Records every node of an inference: time, calls, types, values, differences from a reference."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracer.graph.model import Node
from tracer.graph.refinement import Types
from tracer.graph.tensor_type import TensorType
from tracer.interpreter.kernel_loading import clock_ns
from tracer.interpreter.values import Value
from tracer.support.tolerance import Difference, Precision, Tolerance, compare, worst
from tracer.support.types import dtype_text


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
            record.difference = self._difference(node, outputs)
        left = self.clock()
        self.own_us += (left - ended) / 1e3
        if self._open:
            self._open[-1][1] += left - entered

    def _difference(self, node: Node, outputs: Sequence[Value]) -> Difference | None:
        """Returns the worst difference of the outputs; None where the reference has none."""
        differences = [
            compare(value, self.expected[name], self.tolerance, self.precisions.get(name))
            for name, value in named_tensors(node, outputs)
            if name in self.expected
        ]
        return worst(differences) if differences else None


class TensorRecorder:
    """An observer that keeps the tensors of the main graph; of these `names` alone, if set."""

    def __init__(self, names: Container[str] | None = None) -> None:
        self._names = names
        self.tensors: dict[str, Value] = {}

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Does nothing: there are no outputs yet."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keeps the outputs of the node."""
        named = named_tensors(node, outputs)
        self.tensors.update(
            named if self._names is None else ((n, v) for n, v in named if n in self._names)
        )


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
