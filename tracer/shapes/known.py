"""What is known of a model before a run: types of inputs, and values that follow from shapes.

Small tensors that follow from shapes and stored tensors alone (sizes, axes, pads) are computed by
the interpreter's kernels: only operators of shape arithmetic, each tensor at most once, and only
where something asks for the value. What a rule does not tell is None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np
import onnx

from tracer.graph.model import Address, Model, Node
from tracer.graph.operators import RulesByOperator
from tracer.graph.tensor_type import Dim, TensorType
from tracer.interpreter import values
from tracer.interpreter.operators import evaluated
from tracer.limits import Limits, enforced
from tracer.support.types import Array

_Result = TypeVar("_Result")
Shape = tuple[Dim, ...] | None
Outputs = Sequence[TensorType | None]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a node: its attributes, types and values of its inputs by name."""

    node: Node
    types: Mapping[str, TensorType | None]
    values: Mapping[str, Array | None]

    def type_of(self, index: int) -> TensorType | None:
        """Returns the type of an input; None if it is left out or unknown."""
        return self.types.get(self.node.inputs[index]) if self.has(index) else None

    def shape(self, index: int) -> Shape:
        """Returns the shape of an input; None if it is left out or unknown."""
        kind = self.type_of(index)
        return None if kind is None else kind.shape

    def sizes(self, index: int) -> tuple[Dim, ...]:
        """Returns the shape of an input. Raises UnknownError if it is left out or unknown."""
        return _needed(self.shape(index))

    @property
    def positions(self) -> range:
        """The positions of the inputs."""
        return range(len(self.node.inputs))

    def has(self, index: int) -> bool:
        """Whether the node has this input."""
        return self.node.has_input(index)

    def value(self, index: int) -> Array | None:
        """Returns the value of an input, if it follows from shapes."""
        return self.values.get(self.node.inputs[index]) if self.has(index) else None

    def number(self, index: int) -> int | None:
        """Returns the value of an input of one number, if it follows from shapes."""
        value = self.value(index)
        return None if value is None or value.size != 1 else int(value.reshape(-1)[0])

    def numbers(self, index: int) -> tuple[int, ...]:
        """Returns the values of an input of integers. Raises UnknownError if they are unknown."""
        return tuple(int(each) for each in _needed(self.value(index)).reshape(-1))

    def has_attribute(self, name: str) -> bool:
        """Whether the node has this attribute."""
        return self._attribute(name) is not None

    def integer(self, name: str, default: int = 0) -> int:
        """Returns an integer attribute."""
        attribute = self._attribute(name)
        return default if attribute is None else attribute.i

    def integers(self, name: str) -> tuple[int, ...]:
        """Returns a list of integers; empty where the attribute is left out."""
        attribute = self._attribute(name)
        return () if attribute is None else tuple(attribute.ints)

    def floats(self, name: str) -> tuple[float, ...]:
        """Returns an attribute of one float or several; empty where it is left out."""
        attribute = self._attribute(name)
        if attribute is None:
            return ()
        return tuple(attribute.floats) or (attribute.f,)

    def length(self, *names: str) -> int:
        """Returns how many texts, integers and floats all lists of these names have."""
        found = [each for each in map(self._attribute, names) if each is not None]
        return sum(len(each.strings) + len(each.ints) + len(each.floats) for each in found)

    def typed(self, index: int, shape: Shape) -> TensorType | None:
        """Returns a type of the elements of an input."""
        kind = self.type_of(index)
        return None if kind is None or shape is None else TensorType(kind.dtype, shape)

    def text(self, name: str, default: str) -> str:
        """Returns a text attribute."""
        attribute = self._attribute(name)
        return default if attribute is None else attribute.s.decode(errors="replace")

    def _attribute(self, name: str) -> onnx.AttributeProto | None:
        return next((each for each in self.node.proto.attribute if each.name == name), None)


class UnknownError(Exception):
    """A rule needs what is not known of an input."""


def _needed(found: _Result | None) -> _Result:
    if found is None:
        raise UnknownError
    return found


Rule = Callable[[Known], Outputs]
"""Returns the types of a node's outputs; nothing, or None, where it does not know them.

It may raise UnknownError instead."""


Rules = RulesByOperator[Rule]


def like_first(known: Known) -> Outputs:
    """The rule of an operator whose output has the type of its first input."""
    return [known.type_of(0)]


def divided(size: Dim, parts: int) -> Dim:
    """Returns the size of one of equal parts; None if unknown."""
    return size // parts if isinstance(size, int) and parts else None


def times(size: Dim, parts: int) -> Dim:
    """Returns the size of all parts; None if unknown."""
    return size * parts if isinstance(size, int) else None


def added(past: Dim, new: Dim) -> Dim:
    """Returns the sum of two sizes; None if unknown."""
    return past + new if isinstance(past, int) and isinstance(new, int) else None


def concatenated(shapes: Sequence[tuple[Dim, ...]], axis: int) -> tuple[Dim, ...]:
    """Returns the shape of tensors joined along an axis, whose size is None if one is unknown."""
    sizes = [shape[axis] for shape in shapes]
    numbers = [size for size in sizes if isinstance(size, int)]
    total = sum(numbers) if len(numbers) == len(sizes) else None
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :])


def broadcast(left: Shape, right: Shape) -> Shape:
    """Returns the common shape of known shapes, or of one that the other is a number for."""
    if left is None or right is None:
        return None
    if left == right or not right:
        return left
    if not left:
        return right
    sizes = [dim for dim in (*left, *right) if isinstance(dim, int)]
    if len(sizes) < len(left) + len(right):
        return None
    return np.broadcast_shapes(tuple(sizes[: len(left)]), tuple(sizes[len(left) :]))


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
            weight = self._weights.get(address)
            if weight is None or weight.external_data or not self._is_small(address):
                return ()  # fed, or large
            return [_of_failing(lambda: values.from_tensor(weight))]
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
        arrays = [np.asarray(o) if isinstance(o, np.generic) else o for o in computed or ()]
        return [
            each if isinstance(each, np.ndarray) and each.dtype != object and each.size <= MOST
            else None
            for each in arrays
        ]  # fmt: skip


def _of_failing(compute: Callable[[], _Result]) -> _Result | None:
    """Returns the result; None where the model is wrong there, as a run would tell."""
    try:
        return compute()
    except Exception:
        return None
