"""A node as counting rules see it: typed operands, attributes, constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnx.numpy_helper

from tracer.analyzers.cost.count import UnknownShapeError, UnknownWorkError
from tracer.graph.model import Model, Node, Scope
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import TensorType
from tracer.support.types import Array

Address = tuple[str, str]
"""A tensor: the path of the graph that defines it, and its name."""

LARGEST = 2**63 - 1
"""Counts are 64-bit integers; larger ones are unknown."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a node reads or writes; None is unknown."""

    name: str
    dtype: str | None
    known_shape: tuple[int, ...] | None
    known_size: int | None
    nbytes: int | None
    """Bytes of the packed elements; None if size or width are unknown, or beyond 64 bits."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. Raises UnknownShapeError if a dimension is unknown."""
        if self.known_shape is None:
            raise UnknownShapeError(self.name)
        return self.known_shape

    @property
    def size(self) -> int:
        """Number of elements. Raises UnknownShapeError if a dimension is unknown."""
        if self.known_size is None:
            raise UnknownShapeError(self.name)
        return self.known_size


def operand(name: str, tensor: TensorType) -> Operand:
    """Returns the tensor `name` of this type."""
    shape = tensor.concrete
    if shape is None or min(shape, default=0) < 0:  # inferred from odd attributes
        return Operand(name, tensor.dtype, None, None, None)
    nbytes = tensor.nbytes
    known = nbytes is not None and nbytes <= LARGEST
    return Operand(name, tensor.dtype, shape, tensor.size, nbytes if known else None)


@dataclass(frozen=True)
class Facts:
    """Types and constants of the tensors of a model, with a cache of operands."""

    types: TensorTypes
    opsets: Mapping[str, int]
    constants: Mapping[Address, onnx.NodeProto]
    """The Constant node behind each name that has one."""
    own_rules: Mapping[tuple[str, str], Callable[..., object]] = field(default_factory=dict)
    """The counting rules of the user's own operators, by domain and name."""
    _operands: dict[Address, Operand] = field(default_factory=dict)

    def operand(self, name: str, scope: Scope) -> Operand:
        """Returns the tensor that `name` means in `scope`."""
        address = (scope.path, name)
        found = self._operands.get(address)
        if found is None:
            tensor = self.types.of(name, scope)
            found = self._operands[address] = (
                Operand(name, None, None, None, None) if tensor is None else operand(name, tensor)
            )
        return found

    def value(self, name: str, scope: Scope) -> np.ndarray | None:
        """Returns the values of a constant; None if they depend on data, or are not in the file."""
        weight = self.types.weight(name, scope)
        if weight is None:
            computed = self.types.value(name, scope)
            return self._constant_node(name, scope) if computed is None else computed
        if weight.external_data:
            return None
        try:
            return onnx.numpy_helper.to_array(weight)
        except ValueError:  # it has fewer values than its shape says
            return None

    def _constant_node(self, name: str, scope: Scope) -> np.ndarray | None:
        for outer in scope.outward():
            node = self.constants.get((outer.path, name))
            if node is not None and len(node.attribute) == 1:
                value = onnx.helper.get_attribute_value(node.attribute[0])
                if isinstance(value, onnx.TensorProto):
                    return None if value.external_data else onnx.numpy_helper.to_array(value)
                return np.asarray(value) if isinstance(value, (int, float, list)) else None
        return None


@dataclass(frozen=True, slots=True)
class Operation:
    """A node with typed operands; reading an unknown fact raises UnknownWorkError."""

    node: Node
    facts: Facts

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return self.node.op_type

    @property
    def opset(self) -> int:
        """Version of the operator's domain that the model imports."""
        return self.facts.opsets.get(self.node.domain, 1)

    def with_types(self, types: Mapping[str, TensorType]) -> Operation:
        """Returns the operation in calls with other types of its tensors, by name."""
        own = {(self.node.scope.path, name): operand(name, kind) for name, kind in types.items()}
        return replace(self, facts=replace(self.facts, _operands=own))

    def has(self, index: int) -> bool:
        """Returns whether the optional input at `index` is present."""
        names = self.node.inputs
        return index < len(names) and bool(names[index])

    def input(self, index: int) -> Operand:
        """Returns the input at `index`. Raises UnknownWorkError if it is left out."""
        if not self.has(index):
            raise UnknownWorkError(f"it has no input {index}")
        return self.facts.operand(self.node.inputs[index], self.node.scope)

    def output(self, index: int = 0) -> Operand:
        """Returns the output at `index`. Raises UnknownWorkError if it is left out."""
        names = self.node.outputs
        if index >= len(names) or not names[index]:
            raise UnknownWorkError(f"it has no output {index}")
        return self.facts.operand(names[index], self.node.scope)

    def inputs(self) -> list[Operand]:
        """Returns every tensor it reads, each once."""
        scope, operand = self.node.scope, self.facts.operand
        return [operand(name, scope) for name in dict.fromkeys(self.node.inputs) if name]

    def outputs(self) -> list[Operand]:
        """Returns every tensor it writes."""
        scope, operand = self.node.scope, self.facts.operand
        return [operand(name, scope) for name in self.node.outputs if name]

    def constant(self, index: int) -> np.ndarray | None:
        """Returns the values of the input at `index` if the model stores them, else None."""
        if not self.has(index):
            return None
        return self.facts.value(self.node.inputs[index], self.node.scope)

    def integer(self, name: str, default: int) -> int:
        """Returns an integer attribute."""
        attribute = self._attribute(name)
        return default if attribute is None else attribute.i

    def number(self, name: str, default: float) -> float:
        """Returns a float attribute."""
        attribute = self._attribute(name)
        return default if attribute is None else attribute.f

    def text(self, name: str, default: str) -> str:
        """Returns a string attribute."""
        attribute = self._attribute(name)
        return default if attribute is None else attribute.s.decode(errors="replace")

    def integers(self, name: str) -> tuple[int, ...]:
        """Returns a list of integers; empty where the attribute is left out."""
        attribute = self._attribute(name)
        return () if attribute is None else tuple(attribute.ints)

    def array(self, name: str) -> Array:
        """Returns a list of integers, however long."""
        attribute = self._attribute(name)
        values = () if attribute is None else attribute.ints
        return np.fromiter(values, np.int64, len(values))

    def is_text(self, name: str, text: str) -> Array:
        """Returns which texts of a list are `text`."""
        attribute, wanted = self._attribute(name), text.encode()
        strings = () if attribute is None else attribute.strings
        return np.fromiter((each == wanted for each in strings), np.bool_, len(strings))

    def numbers(self, name: str) -> tuple[float, ...]:
        """Returns a list of floats; empty where the attribute is left out."""
        attribute = self._attribute(name)
        return () if attribute is None else tuple(attribute.floats)

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of strings; empty where the attribute is left out."""
        attribute = self._attribute(name)
        strings = () if attribute is None else attribute.strings
        return tuple(text.decode(errors="replace") for text in strings)

    def _attribute(self, name: str) -> onnx.AttributeProto | None:
        return next((a for a in self.node.proto.attribute if a.name == name), None)


def facts_of(model: Model, types: TensorTypes) -> Facts:
    """Returns the types and constants of `model` for the rules."""
    constants = {
        (node.scope.path, node.outputs[0]): node.proto
        for node in model.nodes
        if node.op_type == "Constant" and not node.domain and node.outputs
    }
    return Facts(types, model.opsets, constants, model.operators.rules)
