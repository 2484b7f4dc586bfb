"""Networks in QONNX, in the form that Brevitas 0.13 exports: floats are quantised in the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tests.accumulators.qcdq import Graph, Layer

DOMAIN = "qonnx.custom_op.general"


@dataclass
class QonnxGraph(Graph):
    """A graph with QONNX's operators, in one of the names of their domain."""

    domain: str = field(default=DOMAIN)

    def quant(self, x: str, scale: Any, zero: Any, bits: Any, *, op_type: str = "Quant",
              **attributes: Any) -> str:  # fmt: skip
        """One Quant with its parameters; signed, not narrow and ROUND unless said."""
        settings = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND", **attributes}
        parameters = (self.constant(np.float32(each)) for each in (scale, zero, bits))
        return self.add(op_type, x, *parameters, domain=self.domain, **settings)

    def bipolar(self, x: str, scale: Any) -> str:
        return self.add("BipolarQuant", x, self.constant(np.float32(scale)), domain=self.domain)

    def model(self, output: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        proto = super().model(output, shape)
        proto.opset_import.add(domain=self.domain, version=1)
        return proto


def network(weight_bits: int, activation_bits: int) -> tuple[onnx.ModelProto, list[Layer]]:
    """Two convolutions with a scale for each channel, and a MatMul of transposed weights."""
    random = np.random.default_rng(weight_bits)
    graph, layers = QonnxGraph(), []
    most = max(2 ** (weight_bits - 1) - 1, 1)
    x = graph.quant("x", 1 / 127, 0, 8)
    low, high = -128, 127
    for name, shape in ("conv1", (8, 3, 3, 3)), ("conv2", (16, 8, 3, 3)), ("matmul", (10, 256)):
        weights = random.normal(0, 1, shape).astype(np.float32)
        rows = weights.reshape(len(weights), -1)
        scale = (np.abs(rows).max(1, keepdims=True) / most).astype(np.float32)
        spread = scale.reshape(-1, *[1] * (len(shape) - 1))
        if weight_bits == 1:
            integers, w = np.where(rows >= 0, 1, -1), graph.bipolar(graph.constant(weights), spread)
        else:
            integers = np.clip(np.rint(rows / scale), -most, most)
            w = graph.quant(graph.constant(weights), spread, 0, weight_bits, narrow=1)
        layers.append(Layer(name, integers.astype(np.int64), low, high))
        if name == "matmul":
            turned = graph.add("Transpose", w, perm=[1, 0])
            x = graph.add("MatMul", graph.add("Flatten", x), turned, name=name)
            continue
        x = graph.add("Conv", x, w, name=name, pads=[1, 1, 1, 1])
        if activation_bits == 1:
            low, high = -1, 1
            x = graph.bipolar(x, 1)
        else:
            low, high = 0, 2**activation_bits - 1
            x = graph.quant(graph.add("Relu", x), 4 / high, 0, activation_bits, signed=0)
        x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return graph.model("matmul", (2, 3, 16, 16)), layers
