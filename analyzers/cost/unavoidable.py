"""The MACs of a product that no kernel can leave out, unlike the padding of a convolution."""

from collections.abc import Hashable, Mapping

import numpy as np

from tracer.analyzers.cost.count import UnknownWorkError
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph.operators import CONVOLUTION, product_types

CONVOLUTIONS = product_types(CONVOLUTION)
PRODUCTS = CONVOLUTIONS | {
    "MatMul", "FusedMatMul", "TransposeMatMul", "Gemm", "FusedGemm", "MatMulInteger",
    "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QLinearMatMul", "QGemm",
}  # fmt: skip
"""Operators that take every product that is counted, but those with zeros of a padding."""


def unavoidable_macs(typed: TypedModel, macs: Mapping[Hashable, int]) -> dict[str, float]:
    """Returns the least MACs per run of each product by node; `macs` are those that are counted."""
    least = {}
    for op in typed.operations:
        key = op.node.key
        if op.op_type in PRODUCTS and macs.get(key):
            try:
                within = _share_outside_padding(op) if op.op_type in CONVOLUTIONS else 1.0
            except (UnknownWorkError, ValueError):
                continue
            least[key] = macs[key] * within
    return least


def _share_outside_padding(op: Operation) -> float:
    """Returns the share of the window positions of a convolution that are no padding."""
    if op.text("auto_pad", "NOTSET").startswith("SAME") or op.integer("channels_last", 0):
        return 0.0
    sizes, outputs = op.input(0).shape[2:], op.output().shape[2:]
    window = op.input(3 if op.op_type == "QLinearConv" else 1).shape[2:]
    axes, ones = len(sizes), (1,) * len(sizes)
    pads = op.integers("pads") or (0,) * axes
    strides, dilations = op.integers("strides") or ones, op.integers("dilations") or ones
    share = 1.0
    for size, count, taps, pad, stride, dilation in zip(
        sizes, outputs, window, pads[:axes], strides, dilations, strict=True
    ):
        first = np.arange(taps) * dilation - pad  # where each tap is for the first output
        low = np.maximum(-(first // stride), 0)
        high = np.minimum(-((first - size) // stride), count)
        share *= float(np.maximum(high - low, 0).sum()) / (count * taps)
    return share
