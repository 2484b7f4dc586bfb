"""Products of 8-bit integers that do not saturate, so that every processor computes what is meant.

Without VNNI, x86 kernels add pairs of uint8 × int8 products in 16 bits, and saturate. The same
weights in uint8, with a zero point 128 higher, are multiplied in more bits: the values are those
that the graph says.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_SHIFT = 128

_WEIGHTS = {
    # operator: inputs that hold the weights and their zero point
    "ConvInteger": (1, 3),
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulInteger": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
    "QGemm": (3, 5),
    "QLinearConv": (3, 5),
    "QLinearMatMul": (3, 5),
}


def shift(proto: onnx.ModelProto, folder: Path) -> None:
    """Put the int8 weights of `proto`, whose external data lie in `folder`, into uint8."""
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        weights, zero = _WEIGHTS.get(node.op_type, (0, 0))
        if zero and len(node.input) > weights and _is_int8(stored.get(node.input[weights])):
            node.input.extend([""] * (zero + 1 - len(node.input)))
            made = [_shifted(stored[node.input[weights]], folder)]
            made.append(_shifted(stored.get(node.input[zero]), folder))
            for place, tensor in zip((weights, zero), made, strict=True):
                tensor.name = f"{node.input[weights]}_{node.input[zero]}_unsaturated_{place}"
            for place, tensor in zip((weights, zero), made, strict=True):
                node.input[place] = tensor.name
                if tensor.name not in stored:
                    stored[tensor.name] = tensor
                    proto.graph.initializer.append(tensor)


def _is_int8(tensor: onnx.TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == tensor.INT8


def _shifted(tensor: onnx.TensorProto | None, folder: Path) -> onnx.TensorProto:
    """`tensor` in uint8; 0 where there is none."""
    values = np.int8(0) if tensor is None else numpy_helper.to_array(tensor, str(folder))
    return numpy_helper.from_array((np.asarray(values, np.int16) + _SHIFT).astype(np.uint8))
