"""A model with the types of its tensors in one run, and what several analyzers derive from both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tracer.analyzers.cost import registry, traffic
from tracer.analyzers.cost.count import UnknownWorkError
from tracer.analyzers.cost.operation import Address, Facts, Operation, facts_of
from tracer.analyzers.cost.parameters import Sources, sources
from tracer.analyzers.cost.quantized_types import QuantizedTypes
from tracer.graph.model import Dataflow, Model
from tracer.graph.shape_inference import TensorTypes


@dataclass(frozen=True)
class Aliases:
    """`viewed` gives the tensor whose bytes a view shows, `all` every name of the same bytes."""

    viewed: Mapping[Address, Address]
    all: Mapping[Address, tuple[Address, ...]]

    def root(self, tensor: Address) -> Address:
        """Returns the tensor that owns the bytes."""
        return self.viewed.get(tensor, tensor)

    def names(self, tensor: Address) -> tuple[Address, ...]:
        """Returns all tensors with the bytes of this one, including itself."""
        root = self.root(tensor)
        return self.all.get(root, (root,))


def aliases(operations: Iterable[Operation], flow: Dataflow) -> Aliases:
    """Returns the views of a model: outputs of operators that move no bytes by their rule."""
    viewed: dict[Address, Address] = {}
    for op in operations:
        node = op.node
        if _is_view(op):
            source = flow.address(node.inputs[0], node.scope)
            viewed[node.scope.path, node.outputs[0]] = viewed.get(source, source)
    names: dict[Address, list[Address]] = {}
    for tensor, root in viewed.items():
        names.setdefault(root, [root]).append(tensor)
    return Aliases(viewed, {root: tuple(tensors) for root, tensors in names.items()})


def _is_view(op: Operation) -> bool:
    rule = registry.find(op.node.domain, op.op_type)
    if rule is None or rule.traffic is traffic.everything:  # most operators, told at once
        return False
    if not op.has(0) or not op.outputs():
        return False
    try:
        moves_nothing = rule.traffic(op) == (0, 0)
        size = op.output().nbytes
        return moves_nothing and size is not None and size == op.input(0).nbytes
    except (UnknownWorkError, ValueError, IndexError):  # ranks or attributes no operator allows
        return False


@dataclass(frozen=True)
class TypedModel:
    """A model whose tensors have these `types`. What follows from them is computed once."""

    model: Model
    types: TensorTypes = field(repr=False)

    @cached_property
    def facts(self) -> Facts:
        """Types and constants, as counting rules look them up."""
        return facts_of(self.model, self.types)

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """The nodes with typed operands, in the order of the model."""
        return tuple(Operation(node, self.facts) for node in self.model.nodes)

    @property
    def flow(self) -> Dataflow:
        """Makers and readers of each tensor."""
        return self.model.dataflow

    @cached_property
    def aliases(self) -> Aliases:
        """The views, which share the bytes of other tensors."""
        return aliases(self.operations, self.flow)

    @cached_property
    def sources(self) -> Sources:
        """The stored tensors from which each constant tensor is derived."""
        return sources(self.model, self.facts, self.quantized_types)

    @cached_property
    def quantized_types(self) -> QuantizedTypes:
        """The types of the numbers that nodes multiply: those before they are dequantised."""
        return QuantizedTypes(self.model, self.types)
