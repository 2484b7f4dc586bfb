"""Reads the real shapes of all tensors and the calls of all nodes off an unoptimised run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracer.graph.model import Model
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import TensorType
from tracer.records.trace import Kernel


@dataclass(frozen=True)
class Observation:
    """TensorTypes by (path of the graph, tensor name), and calls per inference by node key."""

    types: Mapping[tuple[str, str], TensorType] = field(repr=False)
    calls: Mapping[str, float] = field(repr=False)


def needed(model: Model, types: TensorTypes) -> bool:
    """Returns whether shape inference is incomplete: sizes that depend on data, or bodies."""
    if len(model.scopes) > 1:
        return True
    return any(
        (kind := types.of(name, node.scope)) is None or kind.concrete is None
        for node in model.nodes
        for name in filter(None, node.outputs)
    )


def of(model: Model, kernels: Sequence[Kernel]) -> Observation:
    """Returns types and calls from the kernels of an unoptimised run.

    A node of a body without a kernel did not run: the other branch was taken. An operator that the
    runtime expands into others is recognised by the tensor it computes.
    """
    makers = {(n.scope.path, name): n.key for n in model.nodes for name in n.outputs if name}
    calls = {node.key: 0.0 for node in model.nodes if node.scope.owner is not None}
    types: dict[tuple[str, str], TensorType] = {}
    for kernel in kernels:
        names = [name for name in kernel.outputs if name]
        keys = {makers[kernel.scope, n] for n in names if (kernel.scope, n) in makers}
        for key in keys or {kernel.node} - {None}:
            calls[str(key)] = max(calls.get(str(key), 0.0), kernel.calls)
        if len(names) == len(kernel.output_types):
            for name, kind in zip(names, kernel.output_types, strict=True):
                if (kernel.scope, name) in makers:
                    types[kernel.scope, name] = kind
    return Observation(types, calls)
