"""Networks whose weights and activations are quantised, clipped and dequantised in the graph.

Brevitas exports them so: QuantizeLinear, Clip of the integers, DequantizeLinear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter


@dataclass
class Graph:
    """A graph that grows node by node; `x` is its input."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: dict[str, np.ndarray] = field(default_factory=dict)

    def constant(self, value: Any) -> str:
        name = f"c{len(self.stored)}"
        self.stored[name] = np.asarray(value)
        return name

    def add(self, op_type: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        output = name or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def quantized(
        self, x: str, scale: np.ndarray, zero: Any, clip: tuple[int, int] | None = None,
        axis: int = 0, between: tuple[str, dict[str, Any]] | None = None,
    ) -> str:  # fmt: skip
        """Q, Clip and DQ; `between` moves the integers."""
        parameters = self.constant(scale), self.constant(zero)
        q = self.add("QuantizeLinear", x, *parameters, axis=axis)
        if clip is not None:
            limits = (self.constant(np.asarray(end, np.asarray(zero).dtype)) for end in clip)
            q = self.add("Clip", q, *limits)
        if between is not None:
            q = self.add(between[0], q, **between[1])
        return self.add("DequantizeLinear", q, *parameters, axis=axis)

    def model(self, output: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes, "qcdq",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(output, kind, None)],
            [numpy_helper.from_array(value, name) for name, value in self.stored.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def sums(proto: onnx.ModelProto, *feeds: np.ndarray) -> dict[str, PartialSums]:
    """The statistics of every narrow node, over runs of `feeds`."""
    model = loading.from_proto(proto)
    emulation = AccumulatorEmulation(model, Policy.of(Accumulator(32)))
    interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    for feed in feeds:
        interpreter.run(None, {"x": feed})
    return dict(emulation.accumulations())


def rounded(weights: np.ndarray, scale: np.ndarray, low: int, high: int) -> np.ndarray:
    """The integers (M, K), int64, of float weights with a scale for each of M channels."""
    rows = weights.reshape(len(weights), -1).astype(np.float32)
    return np.clip(np.rint(rows / scale.reshape(-1, 1)), low, high).astype(np.int64)


def by_hand(weights: np.ndarray, low: int, high: int) -> list[int]:
    """The bits of each channel's sum of integers (M, K) times any inputs from `low` to `high`.

    With 0 among the inputs, no partial sum reaches further than the sum of all terms does.
    """
    low, high = min(low, 0), max(high, 0)
    least = np.minimum(weights * low, weights * high).sum(1)
    most = np.maximum(weights * low, weights * high).sum(1)
    ends = zip(least.tolist(), most.tolist(), strict=True)
    return [next(b for b in range(2, 65) if -(2 ** (b - 1)) <= lo and hi < 2 ** (b - 1))
            for lo, hi in ends]  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A node's integers (M, K), and the range of its inputs."""

    name: str
    weights: np.ndarray
    low: int
    high: int


def network(weight_bits: int, activation_bits: int) -> tuple[onnx.ModelProto, list[Layer]]:
    """Two convolutions and a Gemm, each of quantised activations, as Brevitas exports them."""
    random = np.random.default_rng(weight_bits)
    graph, layers = Graph(), []
    most = 2 ** (weight_bits - 1) - 1
    x = graph.quantized("x", np.float32(1 / 127), np.int8(0))
    low, high = -128, 127
    for name, shape in ("conv1", (8, 3, 3, 3)), ("conv2", (16, 8, 3, 3)), ("gemm", (10, 256)):
        weights = random.normal(0, 1, shape).astype(np.float32)
        scale = (np.abs(weights).reshape(len(weights), -1).max(1) / most).astype(np.float32)
        layers.append(Layer(name, rounded(weights, scale, -most, most), low, high))
        w = graph.quantized(
            graph.constant(weights), scale, np.zeros(len(scale), np.int8), (-most, most)
        )
        bias = graph.constant(random.normal(0, 1, len(weights)).astype(np.float32))
        if name == "gemm":
            x = graph.add("Gemm", graph.add("Flatten", x), w, bias, name=name, transB=1)
            continue
        x = graph.add("Conv", x, w, bias, name=name, pads=[1, 1, 1, 1])
        low, high = 0, 2**activation_bits - 1
        clip = None if activation_bits == 8 else (low, high)
        x = graph.add("Relu", x)
        x = graph.quantized(x, np.float32(4 / high), np.uint8(0), clip)
        x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return graph.model("gemm", (2, 3, 16, 16)), layers
