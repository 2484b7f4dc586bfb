"""Converts int8 weights to uint8, so that every processor computes the same products.

Without VNNI, x86 kernels add pairs of uint8 × int8 products in 16 bits, and saturate. The same
weights in uint8, with a zero point 128 higher, are multiplied in more bits: the results are exact.
"""

from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data, uses_external_data

from tracer.graph import stored_weights
from tracer.support.types import Array

_SIGN_BIT = 128
"""Turned over, it makes the byte of v + 128 in uint8 of the byte of v in int8."""

_FILE = "unsaturated.weights"
"""The file of weights that were external data before."""

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
    """Converts the int8 weights of `proto` to uint8, in place; external data lie in `folder`.

    What is external data stays so: converted weights go to a file of their own, one at a time.
    """
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    with (folder / _FILE).open("wb") as stream:
        for node in proto.graph.node:
            weights, zero = _WEIGHTS.get(node.op_type, (0, 0))
            if zero and len(node.input) > weights and _is_int8(stored.get(node.input[weights])):
                node.input.extend([""] * (zero + 1 - len(node.input)))
                name = f"{node.input[weights]}_{node.input[zero]}_unsaturated"
                for position in (weights, zero):
                    before = stored.get(node.input[position])
                    node.input[position] = f"{name}_{position}"
                    if node.input[position] not in stored:
                        tensor = _shifted(before, node.input[position], folder, stream)
                        stored[tensor.name] = tensor
                        proto.graph.initializer.append(tensor)


def _is_int8(tensor: onnx.TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == tensor.INT8


def _shifted(
    tensor: onnx.TensorProto | None, name: str, folder: Path, stream: BinaryIO
) -> onnx.TensorProto:
    """Returns `tensor` + 128 in uint8, called `name`; an absent zero point counts as 0.

    The values of external data are appended to `stream`.
    """
    if tensor is None or not uses_external_data(tensor):
        values = np.zeros((), np.int8) if tensor is None else numpy_helper.to_array(tensor)
        return numpy_helper.from_array(_turned(values), name)
    offset = stream.tell()
    values = stored_weights.read_external(tensor, folder)
    stream.write(_turned(values).data)
    stored_weights.unmap(values)
    shifted = onnx.TensorProto(name=name, data_type=onnx.TensorProto.UINT8, dims=tensor.dims)
    shifted.raw_data = b""  # onnx refuses external data of a tensor without this field
    set_external_data(shifted, _FILE, offset, stream.tell() - offset)
    shifted.ClearField("raw_data")
    return shifted


def _turned(values: Array) -> Array:
    return np.asarray(values).view(np.uint8) ^ np.uint8(_SIGN_BIT)
