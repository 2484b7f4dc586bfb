"""A model with the types of its tensors in one run, and what several analyzers derive from both."""

from dataclasses import dataclass, field
from functools import cached_property

from tracer.analyzers.cost.aliases import Aliases, aliases
from tracer.analyzers.cost.operation import Facts, Operation, facts_of
from tracer.analyzers.cost.parameters import Sources, sources
from tracer.analyzers.cost.quantized_types import QuantizedTypes
from tracer.graph.dataflow import Dataflow
from tracer.graph.model import Model
from tracer.graph.shape_inference import TensorTypes


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
