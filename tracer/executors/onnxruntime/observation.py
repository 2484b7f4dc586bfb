"""What one run without optimisation shows of every node: the real shapes, and how often it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracer.tensor import TensorType

if TYPE_CHECKING:
    from tracer.model import Model
    from tracer.shapes import Types
    from tracer.trace import Kernel


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

    A node of a body that has no kernel was not run: the other branch was taken.
    """
    by_key = {node.key: node for node in model.nodes}
    calls = {node.key: 0.0 for node in model.nodes if node.scope.owner is not None}
    types: dict[tuple[str, str], TensorType] = {}
    for kernel in kernels:
        node = by_key.get(kernel.node or "")
        if node is None:
            continue
        calls[node.key] = calls.get(node.key, 0.0) + kernel.calls
        names = [name for name in node.outputs if name]
        if len(names) == len(kernel.output_types):
            for name, kind in zip(names, kernel.output_types, strict=True):
                types[node.scope.path, name] = kind
    return Observation(types, calls)
