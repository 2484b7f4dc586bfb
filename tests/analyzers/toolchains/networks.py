"""Small quantised networks, in qdq form for us and in QONNX for the toolchains."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass
class Net:
    """A network that is written in both forms, node by node; 8 bits, zero points of 0."""

    qdq: list[onnx.NodeProto] = field(default_factory=list)
    quant: list[onnx.NodeProto] = field(default_factory=list)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def activations(self, name: str, x: str, scale: float) -> str:
        """Rounds `x` to uint8 times a scale."""
        self._quant(name, x, scale, signed=0)
        self.tensors |= {f"{name}_zero": np.uint8(0), f"{name}_q_scale": np.float32(scale)}
        own = [f"{name}_q_scale", f"{name}_zero"]
        self.qdq.append(helper.make_node("QuantizeLinear", [x, *own], [f"{name}_q"]))
        self.qdq.append(helper.make_node("DequantizeLinear", [f"{name}_q", *own], [name]))
        return name

    def weights(self, name: str, scale: float, *shape: int) -> str:
        """Returns weights that are int8 times a scale."""
        integers = self.random.integers(-127, 128, shape, np.int8)
        self.tensors[f"{name}_real"] = (integers * np.float32(scale)).astype(np.float32)
        self._quant(name, f"{name}_real", scale, signed=1)
        self.tensors |= {f"{name}_int": integers, f"{name}_q_scale": np.float32(scale),
                         f"{name}_zero": np.int8(0)}  # fmt: skip
        operands = [f"{name}_int", f"{name}_q_scale", f"{name}_zero"]
        self.qdq.append(helper.make_node("DequantizeLinear", operands, [name]))
        return name

    def node(self, op: str, name: str, *inputs: str, **attributes: object) -> str:
        """Adds the same node to both."""
        for nodes in (self.qdq, self.quant):
            nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def model(self, form: str, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        """Returns the model in the form `qdq` or `quant`."""
        nodes = getattr(self, form)
        used = {name for node in nodes for name in node.input}
        graph = helper.make_graph(
            nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(t), n) for n, t in self.tensors.items()
             if n in used],
        )  # fmt: skip
        domains = [helper.make_opsetid("", 17)]
        if form == "quant":
            domains.append(helper.make_opsetid("qonnx.custom_op.general", 1))
        return helper.make_model(graph, opset_imports=domains, ir_version=8)

    def _quant(self, name: str, x: str, scale: float, signed: int) -> None:
        self.tensors |= {f"{name}_scale": np.float32(scale), f"{name}_offset": np.float32(0),
                         f"{name}_bits": np.float32(8)}  # fmt: skip
        self.quant.append(helper.make_node(
            "Quant", [x, f"{name}_scale", f"{name}_offset", f"{name}_bits"], [name],
            domain="qonnx.custom_op.general", signed=signed, narrow=0, rounding_mode="ROUND",
        ))  # fmt: skip


def perceptron(scales: tuple[float, float, float, float]) -> Net:
    """Two products, with the scales of input, weights, activations and weights."""
    net = Net()
    net.activations("a", "x", scales[0])
    net.node("MatMul", "first", "a", net.weights("w", scales[1], 12, 6))
    net.node("Relu", "r", "first")
    net.activations("b", "r", scales[2])
    net.node("MatMul", "second", "b", net.weights("v", scales[3], 6, 4))
    return net


def convolutions() -> Net:
    """A convolution, a depthwise one, two products with weights, and one of two activations."""
    net = Net()
    square = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [1, 1], "dilations": [1, 1]}
    net.activations("a", "x", 0.02)
    net.node("Conv", "whole", "a", net.weights("cw", 0.01, 4, 3, 3, 3), group=1, **square)
    net.activations("b", "whole", 0.03)
    net.node("Conv", "depth", "b", net.weights("dw", 0.01, 4, 1, 3, 3), group=4, **square)
    net.activations("c", "depth", 0.03)
    net.node("Flatten", "f", "c", axis=1)
    net.node("MatMul", "fc", "f", net.weights("fw", 0.01, 100, 5))
    net.activations("d", "fc", 0.04)
    net.node("Transpose", "t", "d", perm=[1, 0])
    net.node("MatMul", "pairs", "d", "t")
    net.activations("e", "fc", 0.04)
    net.node("Gemm", "last", "e", net.weights("gw", 0.01, 7, 5), transB=1)
    return net
