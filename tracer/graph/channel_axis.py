"""Tells the axis of the channels of tensors from the nodes that compute them.

A convolution returns its channels in axis 1, a product with weights in the last axis. Transposes
move the axis, and nodes that keep the axes apart keep it. What follows anything else is not known.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import onnx

from tracer.graph.model import canonical_domain

Axis: TypeAlias = int | None
"""Counted from the front, or, if negative, from the end; None is not known."""

_FIRST, _LAST = 1, -1
_BY_CHANNEL = (
    "Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "GroupNormalization",
    "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool",
    "LRN", "Resize", "Upsample", "DepthToSpace", "SpaceToDepth",
)  # fmt: skip
"""Operators whose specification has the channels in axis 1."""
_KEEPING = (
    "Abs", "Add", "Cast", "Ceil", "Celu", "Clip", "Concat", "Div", "Dropout", "Elu", "Erf",
    "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LayerNormalization",
    "LeakyRelu", "Log", "LogSoftmax", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Pad", "Pow",
    "PRelu", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Cos", "Slice",
    "Softmax", "Softplus", "Softsign", "Split", "Sqrt", "Sub", "Sum", "Swish", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip
"""Operators whose outputs have the axes of their inputs."""


def channel_axes(graph: onnx.GraphProto) -> dict[str, int]:
    """Returns the axis of the channels, by tensor, where the nodes of the main graph tell it."""
    stored = {weight.name for weight in graph.initializer}
    stored |= {node.output[0] for node in graph.node if node.op_type == "Constant"}
    axes: dict[str, int] = {}
    for node in graph.node:
        rule = _RULES.get(node.op_type) if not canonical_domain(node.domain) else None
        axis = None if rule is None else rule(node, axes, stored)
        if axis is not None:
            axes.update((name, axis) for name in node.output if name)
    return axes


_Rule: TypeAlias = Callable[[onnx.NodeProto, Mapping[str, int], set[str]], Axis]


def _by_channel(node: onnx.NodeProto, axes: Mapping[str, int], stored: set[str]) -> Axis:
    return _FIRST


def _product(node: onnx.NodeProto, axes: Mapping[str, int], stored: set[str]) -> Axis:
    """The columns of weights are channels; those of a computed matrix may be anything."""
    return _LAST if node.input[1] in stored else None


def _keeping(node: onnx.NodeProto, axes: Mapping[str, int], stored: set[str]) -> Axis:
    """All inputs that nodes compute must agree: others may be broadcast."""
    found = {axes.get(name) for name in node.input if name and name not in stored}
    return found.pop() if len(found) == 1 else None


def _transpose(node: onnx.NodeProto, axes: Mapping[str, int], stored: set[str]) -> Axis:
    axis = axes.get(node.input[0])
    if axis is None:
        return None
    perm: Sequence[int] = next((each.ints for each in node.attribute if each.name == "perm"), ())
    if not perm:  # the axes are reversed
        return -1 - axis
    return list(perm).index(axis % len(perm))


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(_BY_CHANNEL, _by_channel),
    **dict.fromkeys(_KEEPING, _keeping),
    "MatMul": _product,
    "Gemm": _product,
    "Transpose": _transpose,
}
