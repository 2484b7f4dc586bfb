"""Single kernels as models of their own: a node of the optimised graph, its weights and its inputs.

The graph is the one that a session with the same options saved; a kernel is found in it by the
tensors it makes. Its inputs are the values that one run of that graph has there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tracer.executors.onnxruntime import feeding, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds
from tracer.records.trace import Kernel


@dataclass(frozen=True)
class Piece:
    """One node, the stored tensors it reads, and the values (numpy) of its other inputs.

    `opsets` and `ir_version` are those of the graph it comes from.
    """

    node: onnx.NodeProto
    weights: Mapping[str, onnx.TensorProto] = field(repr=False)
    feeds: Mapping[str, Any] = field(repr=False)
    opsets: Sequence[onnx.OperatorSetIdProto] = field(repr=False)
    ir_version: int

    @property
    def weight_bytes(self) -> int:
        """Size of the stored tensors."""
        return sum(tensor.ByteSize() for tensor in self.weights.values())

    def model(self, count: int, distinct: int) -> onnx.ModelProto:
        """`count` copies of the node side by side, with `distinct` copies of its weights in turn.

        All read the same inputs; the result is that of the last one. Whatever is not read is
        computed all the same where nothing is optimised.
        """
        nodes, stored = [], []
        for place in range(count):
            node = type(self.node)()
            node.CopyFrom(self.node)
            node.name = f"copy{place}"
            node.input[:] = [self._read(name, place % distinct) for name in self.node.input]
            node.output[:] = [f"{name}#{place}" if name else "" for name in self.node.output]
            nodes.append(node)
        for place in range(min(count, distinct)):
            for name, tensor in self.weights.items():
                stored.append(type(tensor)())
                stored[-1].CopyFrom(tensor)
                stored[-1].name = self._read(name, place)
        graph = helper.make_graph(nodes, "replay", _inputs(self.feeds), [], stored)
        result = next(name for name in nodes[-1].output if name)
        graph.output.add(name=result)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=self.ir_version)

    def _read(self, name: str, place: int) -> str:
        return f"{name}#{place}" if name in self.weights else name


def cut(model: Model, saved: Path, feeds: Feeds, kernels: Sequence[Kernel]) -> list[Piece | None]:
    """A piece for each kernel; None for one in a body or with bodies, or of types numpy lacks."""
    proto = onnx.load(saved)
    makers = {name: node for node in proto.graph.node for name in node.output if name}
    nodes = [_node_of(kernel, makers) for kernel in kernels]
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    names = {n for node in nodes if node is not None for n in node.input if n} - set(weights)
    values = _values(model, proto, feeds, sorted(names))
    return [
        Piece(
            node,
            {name: weights[name] for name in node.input if name in weights},
            {name: values[name] for name in node.input if name in values},
            list(proto.opset_import),
            proto.ir_version,
        )
        if node is not None
        else None
        for node in nodes
    ]


def total_bytes(model: Model) -> int:
    """Size of all stored tensors of the model."""
    return sum(tensor.ByteSize() for tensor in model.proto.graph.initializer)


def _node_of(kernel: Kernel, makers: Mapping[str, onnx.NodeProto]) -> onnx.NodeProto | None:
    if kernel.scope or any(_is_foreign(kind.dtype) for kind in kernel.input_types):
        return None
    made = [name for name in kernel.outputs if name]
    node = makers.get(made[0]) if made else None
    if node is None or any(a.HasField("g") or a.graphs for a in node.attribute):
        return None
    return node


def _is_foreign(dtype: str) -> bool:
    """Whether numpy has no such element type: bfloat16, float8, int4, sequences."""
    try:
        return np.dtype(dtype).kind not in "biufc"
    except TypeError:
        return True


def _values(
    model: Model, proto: onnx.ModelProto, feeds: Feeds, names: Sequence[str]
) -> Mapping[str, Any]:
    """What one run of the optimised graph, as it is, has in these tensors."""
    found = {name: feeds[name] for name in names if name in feeds}
    wanted = [name for name in names if name not in found]
    if not wanted:
        return found
    shown = type(proto)()
    shown.CopyFrom(proto)
    del shown.graph.output[:]
    for name in wanted:
        shown.graph.output.add(name=name)
    session = sessions.Factory(
        model, shown.SerializeToString(), OrtSettings(optimization="none")
    ).open()
    run = feeding.runner(model, session, feeds)
    values = (value if hasattr(value, "dtype") else value.numpy() for value in run())
    return {**found, **dict(zip(wanted, values, strict=True))}


def _inputs(feeds: Mapping[str, Any]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
