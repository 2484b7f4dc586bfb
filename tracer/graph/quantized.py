"""Tells quantised operators and graphs from those that compute in floating point."""

from tracer.graph.model import Model, Node

CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""Operators between floats and quantised integers."""

_INTEGER_TO_FLOAT = frozenset(
    {"ConvInteger", "MatMulInteger", "MatMulInteger16", "MatMulIntegerToFloat",
     "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention"}
)  # fmt: skip
_INTEGER_TO_INTEGER = ("QLinear", "QGemm", "NhwcMaxPool")


def returns_integers(op_type: str) -> bool:
    """Whether an operator, or a kernel of onnxruntime, reads and returns quantised integers."""
    return op_type.startswith(_INTEGER_TO_INTEGER)


def computes_in_integers(op_type: str) -> bool:
    """Whether an operator, or a kernel of onnxruntime, computes in quantised integers."""
    return op_type in _INTEGER_TO_FLOAT or returns_integers(op_type)


def rounds_values(op_type: str) -> bool:
    """Whether an operator rounds values to quantised integers; DequantizeLinear does not."""
    return "Quantize" in op_type or returns_integers(op_type)


def quantized_node(model: Model) -> Node | None:
    """Returns the first node that converts to or computes in quantised integers."""
    for node in model.nodes:
        if node.op_type in CONVERSIONS or computes_in_integers(node.op_type):
            return node
    return None
