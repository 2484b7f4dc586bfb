"""Tells quantised operators and graphs from those that compute in floating point."""

from tracer.graph import qonnx
from tracer.graph.model import Model, Node

CONVERSIONS = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Quant", "IntQuant",
     "BipolarQuant", "FloatQuant"}
)  # fmt: skip
"""Operators between floats and quantised numbers."""

_INTEGER_TO_FLOAT = frozenset(
    {"ConvInteger", "MatMulInteger", "MatMulInteger16", "MatMulIntegerToFloat",
     "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention"}
)  # fmt: skip
_ROUNDED = 4
"""Accuracy level of MatMulNBits at which activations are rounded."""
_GROUPS = 4
"""Index of the input of MatMulNBits that chooses the scale of each term."""
_MICROSOFT = "com.microsoft"
_PACKED = frozenset({"MatMulNBits", "GatherBlockQuantized", "QMoE", "MatMulBnb4", "MatMulFpQ4"})
_INTEGER_TO_INTEGER = ("QLinear", "QGemm", "NhwcMaxPool")


def returns_integers(op_type: str) -> bool:
    """Whether an operator, or a kernel of onnxruntime, reads and returns quantised integers."""
    return op_type.startswith(_INTEGER_TO_INTEGER)


def computes_in_integers(op_type: str) -> bool:
    """Whether an operator, or a kernel of onnxruntime, computes in quantised integers."""
    return op_type in _INTEGER_TO_FLOAT or returns_integers(op_type)


def rounds_values(op_type: str) -> bool:
    """Whether an operator rounds values to quantised integers; DequantizeLinear does not."""
    return "Quantize" in op_type or op_type in qonnx.QUANTIZERS or returns_integers(op_type)


def multiplies_packed_integers(node: Node) -> bool:
    """Whether MatMulNBits may round activations to 8 bits, and multiply integers by them."""
    if (node.domain, node.op_type) != (_MICROSOFT, "MatMulNBits"):
        return False
    level = next((a.i for a in node.proto.attribute if a.name == "accuracy_level"), 0)
    has_groups = len(node.inputs) > _GROUPS and bool(node.inputs[_GROUPS])
    return level == _ROUNDED and not has_groups


def adds_integers(model: Model) -> bool:
    """Whether a node of a model adds integers, so that it need not be quantised for them."""
    return quantized_node(model) is not None or any(map(multiplies_packed_integers, model.nodes))


def quantized_node(model: Model) -> Node | None:
    """Returns the first node that converts to or computes in quantised integers."""
    for node in model.nodes:
        converts = node.op_type in CONVERSIONS or node.op_type in qonnx.INTEGER_QUANTIZERS
        if (converts and node.op_type != "FloatQuant") or computes_in_integers(node.op_type):
            return node
    return None


def has_rounded_weights(model: Model) -> bool:
    """Whether a model is quantised, or has weights of few bits that are multiplied as floats."""
    return quantized_node(model) is not None or any(
        (node.op_type in _PACKED and node.domain == _MICROSOFT) or node.op_type == "FloatQuant"
        for node in model.nodes
    )
