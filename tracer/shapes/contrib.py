"""Operators of onnxruntime and ai.onnx.ml that have the output shapes of a standard operator.

onnx has no shape inference for them.
"""

from collections.abc import Mapping

import onnx

from tracer.graph.model import Node
from tracer.graph.tensor_type import TensorType

_DOMAIN = "com.microsoft"
_TWINS = {
    # operator: the standard operator, and how many inputs they share
    "DynamicQuantizeLSTM": ("LSTM", 7),
    "DynamicQuantizeMatMul": ("MatMul", 2),
    "FusedConv": ("Conv", 3),
    "FusedGemm": ("Gemm", 3),
    "MatMulIntegerToFloat": ("MatMul", 2),
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu"), ("Identity", 1)),
}
_LIKE_INPUT = ("Imputer", "Normalizer", "Scaler")
"""Operators of ai.onnx.ml whose output, of floats, has the shape of the input."""
_VERSION = 17
"""Version of the standard operators that these were made after; their shapes have not changed."""


def as_standard(node: Node, version: int) -> tuple[onnx.NodeProto, str, int]:
    """Returns a node with the output shapes of `node`, its domain, and its version.

    It is the node itself, at its own `version`, for an operator that has no twin.
    """
    if node.domain == "ai.onnx.ml" and node.op_type in _LIKE_INPUT:
        op_type, inputs = "Identity", 1
    elif node.domain == _DOMAIN and node.op_type in _TWINS:
        op_type, inputs = _TWINS[node.op_type]
    else:
        return node.proto, node.domain, version
    twin = onnx.NodeProto(op_type=op_type, input=node.inputs[:inputs], output=node.outputs)
    allowed = onnx.defs.get_schema(op_type, _VERSION).attributes
    twin.attribute.extend(each for each in node.proto.attribute if each.name in allowed)
    return twin, "", _VERSION


def with_one_dtype(types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Returns the types with the float type among them for all: a twin does not mix them."""
    floats = (kind.dtype for kind in types.values() if "float" in kind.dtype)
    dtype = next(floats, "float32")
    return {name: TensorType(dtype, kind.shape) for name, kind in types.items()}
