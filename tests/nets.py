"""Small networks of the kinds that runtimes rewrite most, built node by node, weights seeded."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """A graph that grows at its end: each call adds a node named after the tensor it makes."""

    def __init__(self, name: str, **inputs: tuple[int | str, ...]) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs = inputs
        self.rng = np.random.default_rng(0)

    def weight(self, name: str, *shape: int, scale: float = 0.3, shift: float = 0.0) -> str:
        """Normal weights under `name`."""
        values = shift + scale * self.rng.standard_normal(shape)
        return self.constant(name, values.astype(np.float32))

    def constant(self, name: str, values: np.ndarray) -> str:
        """Weights that are given."""
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op: str, name: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        """Add a node; returns the tensor it makes, which bears its name."""
        self.nodes.append(
            helper.make_node(op, list(inputs), [name], name=name, domain=domain, **attributes)
        )
        return name

    def conv(self, name: str, x: str, cin: int, cout: int, kernel: int = 3, **more: int) -> str:
        """A convolution that keeps the size, and its batch normalisation."""
        group = more.get("group", 1)
        w = self.weight(f"{name}_w", cout, cin // group, kernel, kernel)
        pads = [kernel // 2] * 4
        stride = more.get("stride", 1)
        c = self.node(
            "Conv", name, x, w, kernel_shape=[kernel] * 2, pads=pads, group=group,
            strides=[stride] * 2,
        )  # fmt: skip
        scale = [self.weight(f"{name}_{part}", cout, shift=1.0) for part in ("s", "b", "m")]
        variance = self.constant(f"{name}_v", np.linspace(0.5, 2, cout, dtype=np.float32))
        return self.node("BatchNormalization", f"{name}_bn", c, *scale, variance)

    def linear(self, name: str, x: str, cin: int, cout: int) -> str:
        """A matrix product and its bias."""
        product = self.node("MatMul", f"{name}_mm", x, self.weight(f"{name}_w", cin, cout))
        return self.node("Add", name, product, self.weight(f"{name}_b", cout))

    def model(self, output: str, opset: int = 17) -> onnx.ModelProto:
        """The model that makes `output`."""
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in self.inputs.items()
        ]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def mlp() -> onnx.ModelProto:
    """Three layers, the last one without activation."""
    net = Builder("mlp", x=("N", 12))
    h = net.node("Relu", "r1", net.linear("fc1", "x", 12, 32))
    h = net.node("Relu", "r2", net.linear("fc2", h, 32, 32))
    return net.model(net.linear("fc3", h, 32, 5))


def mobilenet() -> onnx.ModelProto:
    """A stem and two inverted residual blocks: depthwise convolutions, Relu6, odd channels."""
    net = Builder("mobilenet", x=("N", 3, 16, 16))
    low, high = (net.constant(n, np.array(v, np.float32)) for n, v in (("zero", 0), ("six", 6)))

    def relu6(name: str, x: str) -> str:
        return net.node("Clip", f"{name}_r6", x, low, high)

    x = relu6("stem", net.conv("stem", "x", 3, 12, stride=2))
    for block, (cin, cout) in enumerate([(12, 12), (12, 20)]):
        p = f"b{block}"
        h = relu6(f"{p}_up", net.conv(f"{p}_up", x, cin, 36, 1))
        h = relu6(f"{p}_dw", net.conv(f"{p}_dw", h, 36, 36, group=36))
        h = net.conv(f"{p}_down", h, 36, cout, 1)
        x = net.node("Add", f"{p}_sum", x, h) if cin == cout else h
    x = net.node("GlobalAveragePool", "pool", x)
    x = net.node("Flatten", "flat", x)
    return net.model(net.linear("head", x, 20, 10))


def encoder() -> onnx.ModelProto:
    """One layer of a transformer encoder, attention and Gelu written out in their parts."""
    net = Builder("encoder", x=("N", 6, 16))
    split = net.constant("split", np.array([0, 6, 4, 4]))
    merge = net.constant("merge", np.array([0, 6, 16]))
    scale = net.constant("scale", np.array(2.0, np.float32))
    q, k, v = (net.node("Reshape", f"{p}_heads", net.linear(p, "x", 16, 16), split) for p in "qkv")
    q = net.node("Transpose", "q_t", q, perm=[0, 2, 1, 3])
    k = net.node("Transpose", "k_t", k, perm=[0, 2, 3, 1])
    v = net.node("Transpose", "v_t", v, perm=[0, 2, 1, 3])
    scores = net.node("Div", "scaled", net.node("MatMul", "scores", q, k), scale)
    mixed = net.node("MatMul", "mixed", net.node("Softmax", "weights", scores, axis=-1), v)
    mixed = net.node("Transpose", "mixed_t", mixed, perm=[0, 2, 1, 3])
    out = net.linear("out", net.node("Reshape", "joined", mixed, merge), 16, 16)
    x = _layer_norm(net, "ln1", net.node("Add", "skip1", "x", out))
    h = net.linear("down", _gelu(net, net.linear("up", x, 16, 32)), 32, 16)
    return net.model(_layer_norm(net, "ln2", net.node("Add", "skip2", x, h)))


def _gelu(net: Builder, x: str) -> str:
    root, one, half = (
        net.constant(n, np.array(v, np.float32))
        for n, v in (("root", 2**0.5), ("one", 1), ("half", 0.5))
    )
    erf = net.node("Erf", "g_erf", net.node("Div", "g_div", x, root))
    product = net.node("Mul", "g_mul", x, net.node("Add", "g_add", erf, one))
    return net.node("Mul", "g", product, half)


def _layer_norm(net: Builder, name: str, x: str) -> str:
    two = net.constant(f"{name}_two", np.array(2, np.float32))
    epsilon = net.constant(f"{name}_eps", np.array(1e-5, np.float32))
    mean = net.node("ReduceMean", f"{name}_mean", x, axes=[-1])
    away = net.node("Sub", f"{name}_sub", x, mean)
    square = net.node("Pow", f"{name}_pow", away, two)
    variance = net.node("ReduceMean", f"{name}_var", square, axes=[-1])
    deviation = net.node("Sqrt", f"{name}_sqrt", net.node("Add", f"{name}_v", variance, epsilon))
    unit = net.node("Div", f"{name}_div", away, deviation)
    scaled = net.node("Mul", f"{name}_mul", unit, net.weight(f"{name}_g", 16, shift=1.0))
    return net.node("Add", name, scaled, net.weight(f"{name}_b", 16))
