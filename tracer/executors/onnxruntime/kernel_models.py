"""Cuts single nodes out of a graph: a node, its weights and its input values.

The graph is the optimised one, whose nodes are kernels, or the model itself. A kernel is located by
the tensors it computes. Inputs have the values of one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from tracer.executors.onnxruntime import all_outputs, node_names, sessions
from tracer.graph import stored_weights, tensor_type
from tracer.graph.model import Model, Node, bodies, expanded_keys
from tracer.inputs.feedset import Feeds
from tracer.records.trace import Kernel
from tracer.support.types import Array


@dataclass(frozen=True)
class Piece:
    """One node, the stored tensors it reads, and the values (numpy) of its other inputs.

    `opsets` and `ir_version` are taken from the graph of the node. External data are in `folder`,
    and are read when a model is made.
    """

    node: onnx.NodeProto
    weights: Mapping[str, onnx.TensorProto] = field(repr=False)
    feeds: Mapping[str, Any] = field(repr=False)
    opsets: Sequence[onnx.OperatorSetIdProto] = field(repr=False)
    ir_version: int
    folder: Path | None = None

    @property
    def weight_bytes(self) -> int:
        """Size of the stored tensors."""
        kinds = map(tensor_type.from_initializer, self.weights.values())
        return sum(kind.nbytes or 0 for kind in kinds)

    def copies(self, count: int, distinct: int) -> Copies:
        """Returns `count` copies of the node side by side, which share `distinct` sets of weights.

        All copies read the same inputs; the output is the output of the last copy. Without
        optimisation the runtime also computes the copies whose output nobody reads.
        """
        nodes = []
        for index in range(count):
            node = type(self.node)()
            node.CopyFrom(self.node)
            node.name = f"copy{index}"
            node.input[:] = [self._copied(name, index % distinct) for name in self.node.input]
            node.output[:] = [f"{name}#{index}" if name else "" for name in self.node.output]
            nodes.append(node)
        stored, values = self._stored(min(count, distinct))
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in self.feeds.items()
        ]
        graph = helper.make_graph(nodes, "replay", inputs, [], stored)
        graph.output.add(name=next(name for name in nodes[-1].output if name))
        proto = helper.make_model(graph, opset_imports=self.opsets, ir_version=self.ir_version)
        return Copies(proto, values)

    def _stored(self, sets: int) -> tuple[list[onnx.TensorProto], dict[str, Array]]:
        """Returns so many sets of the weights, and the values of external ones.

        The first set of these stays in its file, which is mapped; further sets are copies.
        """
        stored, values = [], {}
        for name, tensor in self.weights.items():
            read = self._mapped(tensor)
            for index in range(sets):
                copied = self._copied(name, index)
                if read is None:
                    stored.append(self._whole(tensor, copied))
                else:
                    values[copied] = read.copy() if index else read
                    stored.append(sessions.elsewhere(copied, read))
        return stored, values

    def _mapped(self, tensor: onnx.TensorProto) -> Array | None:
        """Returns external data of a type that numpy has; None of other tensors."""
        if not uses_external_data(tensor) or self.folder is None:
            return None
        read = stored_weights.read_external(tensor, self.folder)
        return read if _is_plain(read) else None

    def _whole(self, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
        whole = onnx.TensorProto()
        whole.CopyFrom(tensor)
        whole.name = name
        if uses_external_data(tensor):
            load_external_data_for_tensor(whole, str(self.folder))
        return whole

    def _copied(self, name: str, index: int) -> str:
        return f"{name}#{index}" if name in self.weights else name


@dataclass(frozen=True)
class Copies:
    """A model of copies of a node, and the values (numpy) of weights that are not in it."""

    proto: onnx.ModelProto = field(repr=False)
    values: Mapping[str, Array] = field(repr=False)


def cut(model: Model, saved: Path, feeds: Feeds, kernels: Sequence[Kernel]) -> list[Piece | None]:
    """Returns a piece of the graph `saved` for each kernel.

    None stands for a kernel with a body or inside one, or of element types that numpy lacks.
    """
    proto = onnx.load(saved, load_external_data=False)
    model = Model(proto, saved, "", expanded_keys(proto), subject=model.name)
    makers = {name: node for node in proto.graph.node for name in node.output if name}
    return _pieces(model, proto, feeds, [_node_of(kernel, makers) for kernel in kernels])


def cut_unfused(model: Model, feeds: Feeds, nodes: Sequence[Node]) -> list[Piece | None]:
    """Returns a piece of `model` itself for each of its nodes.

    None stands for a node with a body or inside one, or of element types that numpy lacks.
    """
    proto = onnx.ModelProto.FromString(node_names.serialize(model))
    protos = [
        None if node.scope.owner is not None or bodies(node.proto) else node.proto for node in nodes
    ]
    return _pieces(model, proto, feeds, protos)


def _pieces(
    model: Model,
    proto: onnx.ModelProto,
    feeds: Feeds,
    nodes: Sequence[onnx.NodeProto | None],
) -> list[Piece | None]:
    """Returns a piece for each of `nodes` of the main graph of `proto`, a form of `model`."""
    weights = {tensor.name: tensor for tensor in (*proto.graph.initializer, *_constants(proto))}
    names = {n for node in nodes if node is not None for n in node.input if n} - set(weights)
    values = _values(model, proto, feeds, sorted(names))
    folder = None if model.path is None else model.path.parent
    return [
        None if node is None else _piece(proto, node, weights, values, folder) for node in nodes
    ]


def _piece(
    proto: onnx.ModelProto,
    node: onnx.NodeProto,
    weights: Mapping[str, onnx.TensorProto],
    values: Mapping[str, Any],
    folder: Path | None,
) -> Piece | None:
    fed = {name: values[name] for name in node.input if name in values}
    if not all(_is_plain(value) for value in fed.values()):
        return None
    stored = {name: weights[name] for name in node.input if name in weights}
    return Piece(node, stored, fed, list(proto.opset_import), proto.ir_version, folder)


def _constants(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yields the tensors of Constant nodes, under the names of their outputs."""
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            yield tensor


def _node_of(kernel: Kernel, makers: Mapping[str, onnx.NodeProto]) -> onnx.NodeProto | None:
    if kernel.scope or any(_is_foreign(kind.dtype) for kind in kernel.input_types):
        return None
    node = makers.get(next(filter(None, kernel.outputs), ""))
    if node is None or any(a.HasField("g") or a.graphs for a in node.attribute):
        return None
    return node


def _is_foreign(dtype: str) -> bool:
    """Returns whether numpy lacks the element type: bfloat16, float8, int4, sequences."""
    try:
        return np.dtype(dtype).kind not in "biufc"
    except TypeError:
        return True


def _is_plain(value: Any) -> bool:
    """Returns whether a value is an array of numbers: None is of a type that numpy lacks."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"


def _values(
    model: Model, proto: onnx.ModelProto, feeds: Feeds, names: Sequence[str]
) -> Mapping[str, Any]:
    """Returns the values of the tensors `names` in one run of the optimised graph."""
    values = {name: feeds[name] for name in names if name in feeds}
    intermediate = [name for name in names if name not in values]
    if not intermediate:
        return values
    copy = type(proto)()
    copy.CopyFrom(proto)
    return {**values, **all_outputs.runner(model, copy, intermediate)(feeds)}
