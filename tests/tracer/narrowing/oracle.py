"""What sums can reach, from the file alone in int64, and inputs that make them reach it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import as_policy
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

MOVES = ("Slice", "Gather", "Reshape", "Transpose", "Relu", "Flatten", "MaxPool")


class Stored:
    """The integers of a graph in qdq form: weights, biases, and the ranges of activations."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = proto
        self.values = {w.name: numpy_helper.to_array(w) for w in proto.graph.initializer}
        self.made = {name: node for node in proto.graph.node for name in node.output}
        self.layers = {
            node.name: node
            for node in proto.graph.node
            if node.op_type in ("Conv", "Gemm", "MatMul")
            and self.made[node.input[1]].input[0] in self.values
        }

    def rows(self, name: str) -> np.ndarray:
        """The weights (M, K) of a layer."""
        node = self.layers[name]
        weights = self.values[self.made[node.input[1]].input[0]].astype(np.int64)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "MatMul" or not attributes.get("transB", node.op_type == "Conv"):
            weights = weights.T
        return weights.reshape(len(weights), -1)

    def bias(self, name: str) -> np.ndarray:
        """The bias (M,) of a layer, or 0."""
        node = self.layers[name]
        has_one = len(node.input) > 2
        bias = self.values[self.made[node.input[2]].input[0]] if has_one else 0
        return np.broadcast_to(np.asarray(bias, np.int64), len(self.rows(name)))

    def quantize(self, tensor: str) -> onnx.NodeProto:
        """The QuantizeLinear that a tensor comes from, through nodes that move its elements."""
        node = self.made[tensor]
        while node.op_type in (*MOVES, "DequantizeLinear"):
            node = self.made[node.input[0]]
        return node

    def range(self, tensor: str) -> tuple[int, int]:
        """The least and the greatest integer of an activation, minus the zero point."""
        quantize = self.quantize(tensor)
        scale, zero = (self.values[name] for name in quantize.input[1:3])
        info = np.iinfo(zero.dtype)
        low, high = info.min - int(zero), info.max - int(zero)
        clip = self.made.get(quantize.input[0])
        if clip is not None and clip.op_type == "Clip":
            ends = [int(np.rint(self.values[name] / scale)) for name in clip.input[1:3]]
            low, high = max(low, ends[0]), min(high, ends[1])
        return min(low, 0), max(high, 0)

    def worst(self, name: str, tile: int | None = None) -> tuple[int, int]:
        """The largest and smallest sum that any input can reach; of tiles without the bias."""
        low, high = self.range(self.layers[name].input[0])
        return worst(self.rows(name), low, high, self.bias(name), tile)


def worst(rows, low, high, bias, tile=None):
    """The largest and smallest sum of integers (M, K) times any inputs; of tiles without bias."""
    terms = np.stack([rows * low, rows * high])
    top, bottom = np.maximum(terms.max(0), 0), np.minimum(terms.min(0), 0)
    if tile is None:
        top, bottom = top.sum(1) + np.maximum(bias, 0), bottom.sum(1) + np.minimum(bias, 0)
    else:
        starts = np.arange(0, rows.shape[1], tile)
        top, bottom = (np.add.reduceat(each, starts, axis=1) for each in (top, bottom))
    return int(top.max()), int(bottom.min())


def overflows_on_worst_inputs(stored: Stored, name: str, bits: int) -> bool:
    """Whether inputs after the signs of the weights make the exact emulation of a layer overflow.

    For each channel there is an input that makes its sum as large as it can be, and one that makes
    it as small; the emulation ends the run at the first sum beyond `bits`.
    """
    node = stored.layers[name]
    low, high = stored.range(node.input[0])
    step = stored.values[stored.quantize(node.input[0]).input[1]]
    rows = stored.rows(name)
    inputs = np.concatenate([np.where(sign * rows > 0, high, low) for sign in (1, -1)])
    shape = stored.values[stored.made[node.input[1]].input[0]].shape
    inputs = inputs.reshape(len(inputs), *shape[1:] if node.op_type == "Conv" else (-1,))
    model = loading.from_proto(_alone(stored, node, step, low, high))
    emulation = AccumulatorEmulation(model, as_policy(f"{bits}(overflow=error)"))
    interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    try:
        interpreter.run(None, {"x": (inputs * step).astype(np.float32)})
    except Exception as error:
        assert "a partial sum leaves" in str(error)
        return True
    (sums,) = emulation.accumulations().values()
    top, bottom = stored.worst(name)
    reached = int(sums.tally.final_max.max()), int(sums.tally.final_min.min())
    spare = int(np.abs(stored.bias(name)).max())
    assert top - reached[0] <= spare and reached[1] - bottom <= spare  # it is the worst input
    return False


def _alone(stored, node, step, low, high):
    """A layer on its own, with its stored weights and activations on their grid."""
    names = [name for tensor in node.input[1:] for name in stored.made[tensor].input]
    weights = [numpy_helper.from_array(stored.values[name], name) for name in names]
    for name, value in (
        ("step", step), ("zero", np.asarray(-low, np.uint8)),
        ("low", np.float32(low) * step), ("high", np.float32(high) * step),
    ):  # fmt: skip
        weights.append(numpy_helper.from_array(np.asarray(value), name))
    layer = onnx.NodeProto()
    layer.CopyFrom(node)
    layer.input[0] = "read"
    layer.output[0] = "y"
    kept = [a for a in layer.attribute if a.name not in ("pads", "auto_pad", "strides")]
    del layer.attribute[:]
    layer.attribute.extend(kept)
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["c"], "c"),
        helper.make_node("QuantizeLinear", ["c", "step", "zero"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["read"], "d"),
        *(stored.made[tensor] for tensor in node.input[1:]), layer,
    ]  # fmt: skip
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in "xy")
    graph = helper.make_graph(nodes, "alone", [x], [y], weights)
    proto = stored.proto
    return helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
