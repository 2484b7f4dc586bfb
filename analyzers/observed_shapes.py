"""What one run without optimisation shows of every node: the real shapes, and how often it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracer.graph.model import Model
from tracer.graph.shape_inference import Types
from tracer.graph.tensor_type import TensorType
from tracer.records.trace import Kernel


@dataclass(frozen=True)
class Observation:
    """Types by (path of the graph, tensor name), and calls per inference by node key."""

    types: Mapping[tuple[str, str], TensorType] = field(repr=False)
    calls: Mapping[str, float] = field(repr=False)


def needed(model: Model, types: Types) -> bool:
    """Whether shapes alone leave something open: a size that depends on data, or a body."""
    if len(model.scopes) > 1:
        return True
    return any(
        (kind := types.of(name, node.scope)) is None or kind.concrete is None
        for node in model.nodes
        for name in filter(None, node.outputs)
    )


def of(model: Model, kernels: Sequence[Kernel]) -> Observation:
    """Read an Observation off the kernels of an unoptimised run.

    A node of a body that has no kernel was not run: the other branch was taken. An operator that
    the runtime expands into others is seen by the tensor it makes.
    """
    makers = {(n.scope.path, name): n.key for n in model.nodes for name in n.outputs if name}
    calls = {node.key: 0.0 for node in model.nodes if node.scope.owner is not None}
    types: dict[tuple[str, str], TensorType] = {}
    for kernel in kernels:
        names = [name for name in kernel.outputs if name]
        made = {makers[kernel.scope, n] for n in names if (kernel.scope, n) in makers}
        for key in made or {kernel.node} - {None}:
            calls[str(key)] = max(calls.get(str(key), 0.0), kernel.calls)
        if len(names) == len(kernel.output_types):
            for name, kind in zip(names, kernel.output_types, strict=True):
                if (kernel.scope, name) in makers:
                    types[kernel.scope, name] = kind
    return Observation(types, calls)
