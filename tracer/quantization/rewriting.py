"""A copy of a quantised graph, its stored tensors and nodes at hand to be changed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import onnx

from tracer.errors import ModelError
from tracer.interpreter.values import from_tensor
from tracer.support.types import Array


class Rewriting:
    """Changes `proto`, a copy of the model that is given."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(proto)
        self._weights = {weight.name: weight for weight in self.proto.graph.initializer}
        self._makers: dict[str, onnx.NodeProto] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self.proto.graph.node:
            self._makers.update((name, node) for name in node.output)
            for name in node.input:
                self._readers[name].append(node)

    def nodes(self, *op_types: str) -> list[onnx.NodeProto]:
        """The nodes of these operators."""
        return [node for node in self.proto.graph.node if node.op_type in op_types]

    def maker(self, name: str) -> onnx.NodeProto | None:
        """The node that makes a tensor."""
        return self._makers.get(name)

    def readers(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that read a tensor."""
        return self._readers.get(name, [])

    def stored(self, name: str, but: Any = None) -> Array | None:
        """The stored tensor of this name; None if there is none, or it is of the type `but`."""
        if name not in self._weights:
            return None
        value = from_tensor(self._weights[name])
        return None if but is not None and value.dtype == but else value

    def parameters(self, node: onnx.NodeProto) -> tuple[Array | None, Array, Array]:
        """What QuantizeLinear or DequantizeLinear reads, if it is stored, its scale and zero point.

        Raises ModelError where one of the last two is not stored.
        """
        scale = self.stored(node.input[1])
        zero = self.stored(node.input[2]) if len(node.input) > 2 else None
        if scale is None or zero is None:
            raise ModelError(
                f"node '{node.name}' ({node.op_type}) has no stored scale and zero point",
                "Fewer bits are for models as `tracer quantize` makes them.",
            )
        return self.stored(node.input[0]), scale, zero

    @staticmethod
    def axis(node: onnx.NodeProto) -> int:
        """The axis of the channels that have a scale each."""
        return next((a.i for a in node.attribute if a.name == "axis"), 1)

    def store(self, node: onnx.NodeProto, index: int, value: Array) -> None:
        """Replace the stored tensor that `node` reads at `index`."""
        name = node.input[index]
        self._weights[name].CopyFrom(onnx.numpy_helper.from_array(value, name))

    def clip(self, node: onnx.NodeProto, low: Array, high: Array) -> None:
        """Put a Clip before `node`, which belongs to the same module."""
        graph = self.proto.graph
        names = [f"{node.output[0]}_{part}" for part in ("clipped", "low", "high")]
        clipped = onnx.helper.make_node(
            "Clip", [node.input[0], *names[1:]], names[:1], name=f"{node.name}_clip"
        )
        clipped.metadata_props.extend(node.metadata_props)
        for name, value in zip(names[1:], (low, high), strict=True):
            graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        node.input[0] = names[0]
        place = next(i for i, n in enumerate(graph.node) if n.output[0] == node.output[0])
        graph.node.insert(place, clipped)
