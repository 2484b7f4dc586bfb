"""Operators of onnxruntime, QONNX and ai.onnx.ml with the output shapes of a standard operator.

onnx has no shape inference for them.
"""

from collections.abc import Mapping

import onnx

from tracer.graph import operators
from tracer.graph.model import Node
from tracer.graph.tensor_type import TensorType

_DOMAIN = "com.microsoft"
_KEEPS_SHAPE = ("Identity", 1)
_LIKE_INPUT = ("BiasGelu", "FastGelu", "Gelu", "Inverse", "QuickGelu", "Trilu")
_TWINS = {
    # (domain, operator): the standard operator, and how many inputs they share
    (_DOMAIN, "DynamicQuantizeLSTM"): ("LSTM", 7),
    (_DOMAIN, "DynamicQuantizeMatMul"): ("MatMul", 2),
    (_DOMAIN, "FusedConv"): ("Conv", 3),
    (_DOMAIN, "FusedGemm"): ("Gemm", 3),
    (_DOMAIN, "GridSample"): ("GridSample", 2),
    (_DOMAIN, "MatMulIntegerToFloat"): ("MatMul", 2),
    **{(_DOMAIN, each): _KEEPS_SHAPE for each in _LIKE_INPUT},
    ("ai.onnx.ml", "Imputer"): _KEEPS_SHAPE,
    **{(operators.QONNX_DOMAIN, each): _KEEPS_SHAPE for each in operators.QUANTIZERS},
}
_TO_FLOATS = frozenset({("ai.onnx.ml", "Normalizer"), ("ai.onnx.ml", "Scaler")})
"""Operators whose output is of floats, with the shape of the input."""
_VERSION = 17
"""Version of the standard operators that these were made after; their shapes have not changed."""


def as_standard(node: Node, version: int) -> tuple[onnx.NodeProto, str, int]:
    """Returns a node with the output shapes of `node`, its domain, and its version.

    It is the node itself, at its own `version`, for an operator that has no twin.
    """
    if (node.domain, node.op_type) in _TO_FLOATS:
        cast = onnx.helper.make_node(
            "Cast", node.inputs[:1], node.outputs, to=onnx.TensorProto.FLOAT
        )
        return cast, "", _VERSION
    if (node.domain, node.op_type) not in _TWINS:
        return node.proto, node.domain, version
    op_type, inputs = _TWINS[node.domain, node.op_type]
    twin = onnx.NodeProto(op_type=op_type, input=node.inputs[:inputs], output=node.outputs)
    allowed = onnx.defs.get_schema(op_type, _VERSION).attributes
    twin.attribute.extend(each for each in node.proto.attribute if each.name in allowed)
    return twin, "", _VERSION


def with_one_dtype(types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Returns the types with the float type among them for all: a twin does not mix them."""
    floats = (kind.dtype for kind in types.values() if "float" in kind.dtype)
    dtype = next(floats, "float32")
    return {name: TensorType(dtype, kind.shape) for name, kind in types.items()}
