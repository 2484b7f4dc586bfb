"""What a rule sees of a node: its operands with their types, its attributes, its constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.numpy_helper

from analyzers.cost.count import UnknownWorkError
from tracer.graph.model import Model, Node, Scope
from tracer.graph.shape_inference import TensorTypes

Address = tuple[str, str]
"""A tensor: the path of the graph that defines it, and its name."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a node reads or writes, as far as it is known."""

    name: str
    dtype: str | None
    known_shape: tuple[int, ...] | None
    known_size: int | None
    nbytes: int | None
    """Bytes of the packed elements; None where size or width are not known."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. Raises UnknownWorkError where a dimension is not known."""
        if self.known_shape is None:
            raise UnknownWorkError(f"the shape of '{self.name}' is not known")
        return self.known_shape

    @property
    def size(self) -> int:
        """Number of elements. Raises UnknownWorkError where a dimension is not known."""
        if self.known_size is None:
            raise UnknownWorkError(f"the shape of '{self.name}' is not known")
        return self.known_size


@dataclass(frozen=True)
class Facts:
    """What is known of the tensors of a model; remembers what it was asked."""

    types: TensorTypes
    opsets: Mapping[str, int]
    constants: Mapping[Address, onnx.NodeProto]
    """The Constant node behind each name that has one."""
    _operands: dict[Address, Operand] = field(default_factory=dict)

    def operand(self, name: str, scope: Scope) -> Operand:
        """The tensor that `name` means in `scope`."""
        address = (scope.path, name)
        found = self._operands.get(address)
        if found is None:
            found = self._operands[address] = self._look_up(name, scope)
        return found

    def value(self, name: str, scope: Scope) -> np.ndarray | None:
        """The values of an initializer or Constant node; None if computed, fed or not loaded."""
        weight = self.types.weight(name, scope)
        if weight is None:
            return self._constant_node(name, scope)
        if weight.external_data:
            return None
        return onnx.numpy_helper.to_array(weight)

    def _look_up(self, name: str, scope: Scope) -> Operand:
        known = self.types.of(name, scope)
        if known is None:
            return Operand(name, None, None, None, None)
        shape = known.concrete
        if shape is None or any(size < 0 for size in shape):  # some exporters write -1 for unknown
            return Operand(name, known.dtype, None, None, None)
        return Operand(name, known.dtype, shape, known.size, known.nbytes)

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
    """A node with typed operands; asking for what is not known raises UnknownWorkError."""

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

    def has(self, index: int) -> bool:
        """Whether the optional input at `index` is given."""
        names = self.node.proto.input
        return index < len(names) and bool(names[index])

    def input(self, index: int) -> Operand:
        """The input at `index`. Raises UnknownWorkError if it is left out."""
        if not self.has(index):
            raise UnknownWorkError(f"it has no input {index}")
        return self.facts.operand(self.node.proto.input[index], self.node.scope)

    def output(self, index: int = 0) -> Operand:
        """The output at `index`. Raises UnknownWorkError if it is left out."""
        names = self.node.proto.output
        if index >= len(names) or not names[index]:
            raise UnknownWorkError(f"it has no output {index}")
        return self.facts.operand(names[index], self.node.scope)

    def inputs(self) -> list[Operand]:
        """Every tensor it reads, each once."""
        scope = self.node.scope
        return [self.facts.operand(n, scope) for n in dict.fromkeys(self.node.proto.input) if n]

    def outputs(self) -> list[Operand]:
        """Every tensor it writes."""
        return [self.facts.operand(n, self.node.scope) for n in self.node.proto.output if n]

    def constant(self, index: int) -> np.ndarray | None:
        """The values of the input at `index` if the model stores them, else None."""
        if not self.has(index):
            return None
        return self.facts.value(self.node.proto.input[index], self.node.scope)

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        found = self._attribute(name)
        return default if found is None else found.i

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        found = self._attribute(name)
        return default if found is None else found.f

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        found = self._attribute(name)
        return default if found is None else found.s.decode(errors="replace")

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers; empty where the attribute is left out."""
        found = self._attribute(name)
        return () if found is None else tuple(found.ints)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty where the attribute is left out."""
        found = self._attribute(name)
        return () if found is None else tuple(s.decode(errors="replace") for s in found.strings)

    def _attribute(self, name: str) -> onnx.AttributeProto | None:
        for attribute in self.node.proto.attribute:
            if attribute.name == name:
                return attribute
        return None


def facts_of(model: Model, types: TensorTypes) -> Facts:
    """Gather what the rules may ask about `model`."""
    constants = {
        (node.scope.path, node.proto.output[0]): node.proto
        for node in model.nodes
        if node.op_type == "Constant" and not node.domain and node.proto.output
    }
    return Facts(types, model.opsets, constants)
