"""Edits a copy of a quantised graph: its initializers, and nodes by the tensors they use."""

from collections import defaultdict
from typing import Any

import numpy as np
import onnx

from tracer.errors import ModelError
from tracer.interpreter.values import from_tensor
from tracer.support.types import Array


class GraphEditor:
    """A copy `proto` of a model, with methods that look up and change nodes and initializers."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(proto)
        self._weights = {weight.name: weight for weight in self.proto.graph.initializer}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self.proto.graph.node:
            self._producers.update((name, node) for name in node.output)
            for name in node.input:
                self._readers[name].append(node)

    def nodes(self, *op_types: str) -> list[onnx.NodeProto]:
        """Returns the nodes of these operators."""
        return [node for node in self.proto.graph.node if node.op_type in op_types]

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Returns the node whose output a tensor is."""
        return self._producers.get(name)

    def readers(self, name: str) -> list[onnx.NodeProto]:
        """Returns the nodes that read a tensor."""
        return self._readers.get(name, [])

    def stored(self, name: str, but: Any = None) -> Array | None:
        """Returns the initializer of this name; None without one, or if it has the type `but`."""
        if name not in self._weights:
            return None
        value = from_tensor(self._weights[name])
        return None if but is not None and value.dtype == but else value

    def parameters(self, node: onnx.NodeProto) -> tuple[Array | None, Array, Array]:
        """Returns the stored input (or None), scale and zero point of a (De)QuantizeLinear.

        Raises ModelError where scale or zero point is not an initializer.
        """
        scale = self.stored(node.input[1])
        zero = self.stored(node.input[2]) if len(node.input) > 2 else None
        if scale is None or zero is None:
            raise ModelError(
                f"node '{node.name}' ({node.op_type}) has no stored scale and zero point",
                "Quantise the float model with `tracer quantize` first.",
            )
        return self.stored(node.input[0]), scale, zero

    @staticmethod
    def axis(node: onnx.NodeProto) -> int:
        """Returns the axis of the channels that have a scale each."""
        return next((a.i for a in node.attribute if a.name == "axis"), 1)

    def store(self, node: onnx.NodeProto, index: int, value: Array) -> None:
        """Replaces the initializer that `node` reads at `index`."""
        name = node.input[index]
        self._weights[name].CopyFrom(onnx.numpy_helper.from_array(value, name))

    def clip(self, node: onnx.NodeProto, low: Array, high: Array) -> None:
        """Inserts a Clip before `node`, with the metadata of `node`."""
        graph = self.proto.graph
        names = [f"{node.output[0]}_{part}" for part in ("clipped", "low", "high")]
        clipped = onnx.helper.make_node(
            "Clip", [node.input[0], *names[1:]], names[:1], name=f"{node.name}_clip"
        )
        clipped.metadata_props.extend(node.metadata_props)
        for name, value in zip(names[1:], (low, high), strict=True):
            graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        node.input[0] = names[0]
        index = next(i for i, n in enumerate(graph.node) if n.output[0] == node.output[0])
        graph.node.insert(index, clipped)
