"""Networks in QONNX, in the form that Brevitas 0.13 exports: floats are quantised in the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tests.accumulators import a2q
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


def a2q_network(width: int, is_centred: bool) -> onnx.ModelProto:
    """Two convolutions and a MatMul with the greatest weights that A2Q allows for a width.

    With `is_centred`, the weights of a channel add up to 0 and have the budget of A2Q+. The input
    has 8 bits, other activations 4 bits; all are unsigned, as both papers have them.
    """
    random, graph = np.random.default_rng(width), QonnxGraph()
    step, bits = 1 / 256, 8
    x = graph.quant("x", step, 0, bits, signed=0)
    for name, shape in ("conv1", (6, 3, 3, 4)), ("conv2", (8, 6, 3, 4)), ("matmul", (5, 64)):
        integers = _within_budget(random, shape, width, bits, is_centred)
        turned = np.float32(integers if name != "matmul" else integers.T) / 64
        w = graph.quant(graph.constant(turned), 1 / 64, 0, 8, narrow=1)
        if name == "matmul":
            return graph.model(graph.add("MatMul", graph.add("Flatten", x), w, name=name), INPUT)
        x = graph.add("Relu", graph.add("Conv", x, w, name=name, pads=[1, 1, 1, 2]))
        step, bits = step / 64 * 2.0 ** (width - 8), 4
        x = graph.quant(x, step, 0, bits, signed=0)
        x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    raise AssertionError


INPUT = (4, 3, 8, 16)
"""Shape of the input of `a2q_network`."""


def _within_budget(
    random: np.random.Generator, shape: tuple[int, ...], width: int, bits: int, is_centred: bool
) -> np.ndarray:
    """Integers of 8 bits, rounded towards zero, whose rows have the budget of magnitudes."""
    budget = a2q.centred_weight_budget(width, bits) if is_centred else None
    budget = float(budget or a2q.weight_budget(width, bits, False))
    rows = random.normal(0, 1, (shape[0], int(np.prod(shape[1:]))))
    if is_centred:
        half = rows[:, : rows.shape[1] // 2]
        rows = np.concatenate([half, -half[:, ::-1]], axis=1)
    rows *= budget / np.abs(rows).sum(1, keepdims=True)
    return np.clip(np.trunc(rows), -127, 127).astype(np.int64).reshape(shape)
