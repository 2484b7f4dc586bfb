"""Networks for benchmarks, built with onnx alone: random weights, published shapes."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

Model = onnx.ModelProto


class Builder:
    """Builds a graph node by node; weights come from one seeded generator."""

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        self.name = name
        self.shape = list(shape)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def add(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """Appends a node and returns the name of its output."""
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Adds a normal weight of standard deviation `scale` [default: 1 / sqrt(fan-in)]."""
        fan_in = math.prod(shape[1:]) if len(shape) > 2 else shape[0]
        values = self._random.standard_normal(shape) * (scale or 1 / math.sqrt(fan_in))
        return self.constant(values.astype(np.float32))

    def constant(self, values: np.ndarray) -> str:
        """Adds an initializer and returns its name."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(values, name))
        return name

    def model(self, output: str, *shape: int) -> Model:
        """Returns the checked model with the input `x` and one output of this shape."""
        float32 = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("x", float32, self.shape)],
            [helper.make_tensor_value_info(output, float32, shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        return model


def resnet20(batch: int = 64) -> Model:
    """ResNet-20 for CIFAR (He et al., 2016): 3 stages of 3 basic blocks, unfolded batch norms."""
    net = Builder("resnet20", (batch, 3, 32, 32))
    x = _conv(net, "x", 3, 16)
    channels = 16
    for stage, maps in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if stage and not block else 1
            inner = _conv(net, x, channels, maps, stride=stride)
            inner = _conv(net, inner, maps, maps, relu=False)
            if stride > 1:
                x = _conv(net, x, channels, maps, kernel=1, stride=stride, relu=False)
            x = net.add("Relu", net.add("Add", inner, x))
            channels = maps
    return net.model(_classifier(net, x, channels, 10), batch, 10)


def resnet50(batch: int = 1) -> Model:
    """ResNet-50 for ImageNet (He et al., 2016), stride in the 3 by 3 convolutions."""
    net = Builder("resnet50", (batch, 3, 224, 224))
    x = _conv(net, "x", 3, 64, kernel=7, stride=2)
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            inner = _conv(net, x, channels, width, kernel=1)
            inner = _conv(net, inner, width, width, stride=stride)
            inner = _conv(net, inner, width, 4 * width, kernel=1, relu=False)
            if not block:
                x = _conv(net, x, channels, 4 * width, kernel=1, stride=stride, relu=False)
            x = net.add("Relu", net.add("Add", inner, x))
            channels = 4 * width
    return net.model(_classifier(net, x, channels, 1000), batch, 1000)


def mobilenet(batch: int = 1, size: int = 224, width: int = 32) -> Model:
    """MobileNet v1 (Howard et al., 2017): alternating depthwise and pointwise convolutions.

    `width` is the number of channels of the first layer, 32 in the publication.
    """
    net = Builder("mobilenet", (batch, 3, size, size))
    x = _conv(net, "x", 3, width, stride=2)
    channels = width
    layers = [(2, 1), (4, 2), (4, 1), (8, 2), (8, 1), (16, 2)]
    layers += [(16, 1)] * 5 + [(32, 2), (32, 1)]
    for multiple, stride in layers:
        x = _conv(net, x, channels, channels, stride=stride, group=channels)
        x = _conv(net, x, channels, multiple * width, kernel=1)
        channels = multiple * width
    return net.model(_classifier(net, x, channels, 1000), batch, 1000)


def encoder(batch: int = 1, length: int = 128, layers: int = 12, width: int = 768) -> Model:
    """A transformer encoder (Vaswani et al., 2017) of the size of BERT base; input: embeddings."""
    net = Builder("encoder", (batch, length, width))
    x = "x"
    for _ in range(layers):
        x = _normalized(net, net.add("Add", x, _attention(net, x, batch, length, width, 12)), width)
        inner = _gelu(net, _linear(net, x, width, 4 * width))
        x = _normalized(net, net.add("Add", x, _linear(net, inner, 4 * width, width)), width)
    return net.model(x, batch, length, width)


NETWORKS: dict[str, Callable[[int], Model]] = {
    "resnet20": resnet20,
    "resnet50": resnet50,
    "mobilenet": mobilenet,
    "encoder": encoder,
}


def _conv(
    net: Builder,
    x: str,
    channels: int,
    maps: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    group: int = 1,
    relu: bool = True,
) -> str:
    """Adds a convolution, its batch normalisation, and a Relu if `relu`."""
    weight = net.weight(maps, channels // group, kernel, kernel)
    x = net.add("Conv", x, weight, pads=[kernel // 2] * 4, strides=[stride] * 2, group=group)
    ones, zeros = np.ones(maps, np.float32), np.zeros(maps, np.float32)
    statistics = [net.constant(v) for v in (ones, zeros, zeros, ones)]
    x = net.add("BatchNormalization", x, *statistics)
    return net.add("Relu", x) if relu else x


def _classifier(net: Builder, x: str, channels: int, classes: int) -> str:
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.add("Gemm", x, net.weight(channels, classes), net.weight(classes, scale=0.1))


def _linear(net: Builder, x: str, inputs: int, outputs: int) -> str:
    product = net.add("MatMul", x, net.weight(inputs, outputs))
    return net.add("Add", product, net.weight(outputs, scale=0.1))


def _attention(net: Builder, x: str, batch: int, length: int, width: int, heads: int) -> str:
    split = net.constant(np.array([batch, length, heads, width // heads]))
    query, key, value = (
        net.add("Transpose", net.add("Reshape", _linear(net, x, width, width), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scale = net.constant(np.array(math.sqrt(width // heads), np.float32))
    scores = net.add("Softmax", net.add("Div", net.add("MatMul", query, key), scale))
    mixed = net.add("Transpose", net.add("MatMul", scores, value), perm=[0, 2, 1, 3])
    joined = net.add("Reshape", mixed, net.constant(np.array([batch, length, width])))
    return _linear(net, joined, width, width)


def _gelu(net: Builder, x: str) -> str:
    root = net.constant(np.array(math.sqrt(2), np.float32))
    one, half = (net.constant(np.array(v, np.float32)) for v in (1, 0.5))
    shifted = net.add("Add", net.add("Erf", net.add("Div", x, root)), one)
    return net.add("Mul", net.add("Mul", x, shifted), half)


def _normalized(net: Builder, x: str, width: int) -> str:
    scale, bias = (
        net.constant(np.ones(width, np.float32)),
        net.constant(np.zeros(width, np.float32)),
    )
    return net.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)


def deep(count: int) -> Model:
    """Returns a net of `count` nodes that repeats Conv, BatchNormalization, Relu and a skip."""
    weights = {"w": np.zeros((8, 8, 3, 3)), **{n: np.ones(8) for n in ("s", "b", "m", "v")}}
    nodes = []
    last = "x"
    for i in range(count // 4):
        nodes += [
            helper.make_node("Conv", [last, "w"], [f"c{i}"], f"c{i}", pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{i}", *"sbmv"], [f"n{i}"], f"n{i}"),
            helper.make_node("Relu", [f"n{i}"], [f"r{i}"], f"r{i}"),
            helper.make_node("Add", [f"r{i}", last], [f"a{i}"], f"a{i}"),
        ]
        last = f"a{i}"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "deep",
        [value("x", onnx.TensorProto.FLOAT, ["N", 8, 16, 16])],
        [value(last, onnx.TensorProto.FLOAT, ["N", 8, 16, 16])],
        [onnx.numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(count: int) -> Model:
    """Returns `count` Relus in a chain."""
    tensors = ["x", *(f"r{i}" for i in range(count))]
    nodes = [
        helper.make_node("Relu", [read], [written], written)
        for read, written in itertools.pairwise(tensors)
    ]
    value = helper.make_tensor_value_info
    ends = [value(name, onnx.TensorProto.FLOAT, [1, 4]) for name in ("x", tensors[-1])]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
