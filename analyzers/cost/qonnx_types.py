"""The types of the numbers that QONNX's operators round to, as `int4` or `float8_e4m3fn`."""

import math
from collections.abc import Callable

from tracer.graph.model import Node
from tracer.support.types import Array

Stored = Callable[[int], "Array | None"]
"""Returns the constant input of a node at an index; None if it is not constant."""

_FLOATS = {
    # (exponent bits, mantissa bits): the type of ONNX with these
    (8, 23): "float32", (5, 10): "float16", (8, 7): "bfloat16", (4, 3): "float8_e4m3fn",
    (5, 2): "float8_e5m2", (2, 1): "float4e2m1",
}  # fmt: skip


def dtype_of(node: Node, stored: Stored) -> str | None:
    """Returns the type of the numbers that a node rounds to; None where its bits are not stored.

    A signed number of one bit is -1 or 1. The sign of Trunc in version 1, which has no attribute
    for it, is that of a signed number. Fractions of a bit are rounded up.
    """
    match node.op_type:
        case "BipolarQuant":
            return "int1"
        case "MultiThreshold":
            return _of_thresholds(node, stored)
        case "FloatQuant":
            exponent, mantissa = (_bits(stored(index)) for index in (2, 3))
            return (
                None if exponent is None or mantissa is None else _FLOATS.get((exponent, mantissa))
            )
    bits = _bits(stored(max(4, len(node.inputs) - 1) if node.op_type == "Trunc" else 3))
    signed = next((a.i for a in node.proto.attribute if a.name == "signed"), 1)
    return None if bits is None else f"{'int' if signed else 'uint'}{bits}"


def _of_thresholds(node: Node, stored: Stored) -> str | None:
    """The type that an attribute names, else the one that counts of thresholds have."""
    named = next((a.s.decode() for a in node.proto.attribute if a.name == "out_dtype"), "")
    if named.upper() in ("BIPOLAR", "BINARY"):
        return "int1" if named.upper() == "BIPOLAR" else "uint1"
    if named.upper().startswith(("INT", "UINT")) and named[-1:].isdigit():
        return named.lower()
    thresholds = stored(1)
    return (
        None
        if thresholds is None or not thresholds.ndim
        else f"uint{int(thresholds.shape[-1]).bit_length()}"
    )


def _bits(value: Array | None) -> int | None:
    if value is None or not value.size or not 0 < float(value.max()) <= 64:
        return None
    return math.ceil(float(value.max()))
