"""Computes small tensors that follow from shapes and stored tensors alone: sizes, axes, pads.

The kernels are the interpreter's. Only operators of shape arithmetic are computed, on small
tensors, each at most once, and only where something asks for the value.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np

from tracer.graph.model import Address, Model, Node
from tracer.graph.tensor_type import TensorType
from tracer.interpreter import values
from tracer.interpreter.constants import evaluated
from tracer.limits import Limits, enforced
from tracer.support.types import Array

_Result = TypeVar("_Result")

MOST = 1024
"""Elements of a value that is computed. Shapes have a few; a table of indices has hundreds."""

_LIMITS = Limits(tensor_bytes=1 << 16, live_bytes=1 << 20, loop_trips=0)
"""A computed tensor of `MOST` elements has at most 16 KiB."""

_READS_SHAPES = frozenset({"Shape", "Size"})
"""Operators that need the shape of their input and not its values."""

_ARITHMETIC = _READS_SHAPES | frozenset(
    {
        "Abs", "Add", "And", "ArgMax", "ArgMin", "Cast", "CastLike", "Ceil", "Clip", "Compress",
        "Concat", "Constant", "ConstantOfShape", "CumSum", "Div", "Equal", "Expand", "Flatten",
        "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity",
        "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or",
        "Pad", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape",
        "Round", "ScatterElements", "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub",
        "Sum", "Tile", "TopK", "Transpose", "Unsqueeze", "Where", "Xor",
    }
)  # fmt: skip
"""What exporters compute shapes with. Other operators would compile kernels, or take long."""

BRANCHES = {True: "then_branch", False: "else_branch"}
"""The attribute of an If that runs, by its condition."""

TypeOf = Callable[[Address], TensorType | None]
"""Returns the type of a tensor, as far as it is known now."""


class KnownValues:
    """The values of a model's tensors by address, once they were asked for.

    None stands for a value that depends on data, or is too large. `type_of` may know more at each
    call, so a value is to be asked for when all types before its node are known.
    """

    def __init__(self, model: Model, type_of: TypeOf) -> None:
        self._model = model
        self._type_of = type_of
        self._flow = model.dataflow
        self._scopes = {scope.path: scope for scope in model.scopes}
        self._weights = {
            (scope.path, weight.name): weight
            for scope in model.scopes
            for weight in scope.graph.initializer
        }
        self._found: dict[Address, Array | None] = {}

    def of(self, address: Address) -> Array | None:
        """Returns the value of a tensor; None if it is large, or not known from shapes.

        What it is computed from is computed first: on a list of its own, as graphs are deep.
        """
        waiting = [address]
        while waiting:
            top = waiting[-1]
            if top in self._found:
                waiting.pop()
                continue
            sources = self._sources(top)
            if sources is None or any(
                each in self._found and self._found[each] is None for each in sources
            ):
                self._keep(top, ())
            elif missing := [source for source in sources if source not in self._found]:
                waiting.extend(reversed(missing))
            else:
                self._keep(top, self._outputs(top, [self._found[source] for source in sources]))
        return self._found[address]

    def assume(self, address: Address, value: Array) -> None:
        """Sets the value of a tensor that no node computes."""
        self._found[address] = value

    def forget(self, paths: frozenset[str]) -> None:
        """Drops the values of the graphs at these paths, whose types have changed."""
        for address in [each for each in self._found if each[0] in paths]:
            del self._found[address]

    def branch(self, node: Node) -> str | None:
        """Returns the attribute of the branch that an If takes; None if that depends on data."""
        condition = self.of(self._flow.address(node.inputs[0], node.scope))
        return None if condition is None or condition.size != 1 else BRANCHES[bool(condition)]

    def by_path(self) -> dict[str, dict[str, Array]]:
        """Returns what was found of computed tensors, by the path of the graph and the name."""
        computed: dict[str, dict[str, Array]] = {}
        for (path, name), value in self._found.items():
            if value is not None and (path, name) not in self._weights:
                computed.setdefault(path, {})[name] = value
        return computed

    def _keep(self, address: Address, outputs: Sequence[Array | None]) -> None:
        """Keeps the value of a tensor, and those of the other outputs of its node."""
        node = self._flow.makers.get(address)
        if node is None or node.op_type == "If":
            self._found[address] = next(iter(outputs), None)
            return
        for name, value in zip_longest(node.outputs, outputs[: len(node.outputs)]):
            if name:
                self._found[node.scope.path, name] = value

    def _sources(self, address: Address) -> tuple[Address, ...] | None:
        """Returns the tensors whose values are needed for this one; None if it is not computed."""
        node = self._flow.makers.get(address)
        if node is None:
            return ()
        if node.domain or not self._is_small(address):
            return None
        if node.op_type == "If":
            return self._sources_of_branch(node, node.outputs.index(address[1]))
        if node.op_type in _READS_SHAPES:
            return ()
        inputs = tuple(self._flow.read(node))
        is_computed = node.op_type in _ARITHMETIC and all(map(self._is_small, inputs))
        return inputs if is_computed else None

    def _is_small(self, address: Address) -> bool:
        """Whether it has few elements, or an unknown number of them."""
        type_ = self._type_of(address)
        return type_ is None or (type_.size or 0) <= MOST

    def _sources_of_branch(self, node: Node, position: int) -> tuple[Address, ...] | None:
        """Returns the condition of an If and, once it is known, the result of its branch."""
        condition = self._flow.address(node.inputs[0], node.scope)
        if condition not in self._found:
            return (condition,)
        scope = self._scopes.get(f"{node.key}.{self.branch(node)}")
        if scope is None or position >= len(scope.graph.output):
            return None
        return condition, self._flow.address(scope.graph.output[position].name, scope)

    def _outputs(self, address: Address, sources: Sequence[Array | None]) -> Sequence[Array | None]:
        """Returns the outputs of the node of a tensor; none where it fails."""
        node = self._flow.makers.get(address)
        if node is None:
            return [self._stored(address)]
        if node.op_type == "If":
            return sources[1:]
        by_name = dict(zip(dict.fromkeys(filter(None, node.inputs)), sources, strict=False))
        inputs: list[Any] = [by_name.get(name) for name in node.inputs]
        if node.op_type in _READS_SHAPES:
            type_ = self._type_of(self._flow.address(node.inputs[0], node.scope))
            if type_ is None or type_.concrete is None:
                return ()
            inputs = [np.broadcast_to(np.int8(0), type_.concrete)]  # takes no memory
        opset = self._model.opsets.get(node.domain, 1)
        with enforced(_LIMITS):
            computed = _of_failing(lambda: list(evaluated(node, opset, inputs)))
        return [_small_numbers(output) for output in computed or ()]

    def _stored(self, address: Address) -> Array | None:
        """Returns the value of a small initializer; None for a tensor that is fed."""
        weight = self._weights.get(address)
        if weight is None or weight.external_data or not self._is_small(address):
            return None
        return _of_failing(lambda: values.from_tensor(weight))


def _small_numbers(output: Any) -> Array | None:
    """Returns a small tensor of numbers; None for anything else."""
    array = np.asarray(output) if isinstance(output, np.generic) else output
    is_number = isinstance(array, np.ndarray) and array.dtype != object
    return array if is_number and array.size <= MOST else None


def _of_failing(compute: Callable[[], _Result]) -> _Result | None:
    """Returns the result; None where the model is wrong there, as a run would tell."""
    try:
        return compute()
    except Exception:
        return None
