"""Converts int8 weights to uint8, so that every processor computes the same products.

Without VNNI, x86 kernels add pairs of uint8 × int8 products in 16 bits, and saturate. The same
weights in uint8, with a zero point 128 higher, are multiplied in more bits: the results are exact.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_SHIFT = 128

_WEIGHTS = {
    # operator: positions of the weights and of their zero point
    "ConvInteger": (1, 3),
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulInteger": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
    "QGemm": (3, 5),
    "QLinearConv": (3, 5),
    "QLinearMatMul": (3, 5),
}


def shift(proto: onnx.ModelProto, folder: Path) -> None:
    """Converts the int8 weights of `proto` to uint8, in place; external data lie in `folder`."""
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        weights, zero = _WEIGHTS.get(node.op_type, (0, 0))
        if zero and len(node.input) > weights and _is_int8(stored.get(node.input[weights])):
            node.input.extend([""] * (zero + 1 - len(node.input)))
            name = f"{node.input[weights]}_{node.input[zero]}_unsaturated"
            for position in (weights, zero):
                tensor = _shifted(stored.get(node.input[position]), folder)
                tensor.name = node.input[position] = f"{name}_{position}"
                if tensor.name not in stored:
                    stored[tensor.name] = tensor
                    proto.graph.initializer.append(tensor)


def _is_int8(tensor: onnx.TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == tensor.INT8


def _shifted(tensor: onnx.TensorProto | None, folder: Path) -> onnx.TensorProto:
    """Returns `tensor` + 128 in uint8; an absent zero point counts as 0."""
    values = np.int8(0) if tensor is None else numpy_helper.to_array(tensor, str(folder))
    return numpy_helper.from_array((np.asarray(values, np.int16) + _SHIFT).astype(np.uint8))
