"""What a rule for the types of a node's outputs looks at, and arithmetic of sizes.

What a rule does not tell is None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tracer.graph.model import Node
from tracer.graph.tensor_type import Dim, TensorType
from tracer.support.types import Array

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
        names = self.node.inputs
        return self.types.get(names[index]) if index < len(names) and names[index] else None

    def shape(self, index: int) -> Shape:
        """Returns the shape of an input; None if it is left out or unknown."""
        kind = self.type_of(index)
        return None if kind is None else kind.shape

    @property
    def positions(self) -> range:
        """The positions of the inputs."""
        return range(len(self.node.inputs))

    def has(self, index: int) -> bool:
        """Whether the node has this input."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def value(self, index: int) -> Array | None:
        """Returns the value of an input, if it follows from shapes."""
        return self.values.get(self.node.inputs[index]) if self.has(index) else None

    def number(self, index: int) -> int | None:
        """Returns the value of an input of one number, if it follows from shapes."""
        value = self.value(index)
        return None if value is None or value.size != 1 else int(value.reshape(-1)[0])

    def numbers(self, index: int) -> tuple[int, ...] | None:
        """Returns the values of an input of integers, if they follow from shapes."""
        value = self.value(index)
        return None if value is None else tuple(int(each) for each in value.reshape(-1))

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


Rule = Callable[[Known], Outputs]
"""Returns the types of a node's outputs; nothing, or None, where it does not know them."""


class Rules(dict[str, Rule]):
    """The rules of a domain by operator; `@rules("Conv")` adds the function below it."""

    def __call__(self, *op_types: str) -> Callable[[Rule], Rule]:
        """Returns a decorator that adds a function as the rule of these operators."""

        def add(rule: Rule) -> Rule:
            self.update(dict.fromkeys(op_types, rule))
            return rule

        return add


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
