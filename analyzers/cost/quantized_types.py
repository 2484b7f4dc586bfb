"""The types of quantised numbers: those before DequantizeLinear, as narrow as a Clip makes them.

QONNX's operators declare the bits of what they round to.
"""

import math
from collections.abc import Callable

from tracer.accumulators.engine.tensor_scales import ELEMENTS_KEPT
from tracer.accumulators.engine.value_ranges import StoredValues, ValueRanges
from tracer.graph import operators
from tracer.graph.model import Address, Model, Node, Scope
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import bits_of
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


_FOLLOWED = ELEMENTS_KEPT | {"Clip", "DequantizeLinear"}


class QuantizedTypes:
    """The types that the elements of a model's tensors have as factors of a product.

    Dequantised elements have the type before DequantizeLinear, also behind operators that only move
    them. Integers that a Clip limits have the bits that its limits need, as `int2`: so QCDQ models
    store fewer than 8 bits. What QONNX's Quant returns has the type that it rounds to.
    """

    def __init__(self, model: Model, types: TensorTypes) -> None:
        self._types = types
        self._flow = model.dataflow
        self._stored = StoredValues(model)
        self._ranges = ValueRanges(model, self._stored)
        self._passed_on: dict[Address, str | None] = {}
        for node in model.nodes:  # makers come first
            rounds = operators.is_qonnx_quantizer(node.domain, node.op_type)
            if rounds or (not node.domain and node.op_type in _FOLLOWED):
                self._passed_on.update(dict.fromkeys(self._flow.outputs_of(node), self._by(node)))

    def of(self, name: str, scope: Scope) -> str | None:
        """Returns the type of a tensor's elements; None where unknown, or no kind of number."""
        address = self._flow.address(name, scope)
        if address in self._passed_on:
            return self._passed_on[address]
        return self.declared(name, scope)

    def bits(self, name: str, scope: Scope) -> int | None:
        """Returns the bits of each element; None where the type is unknown."""
        dtype = self.of(name, scope)
        return None if dtype is None else width(dtype)

    def declared(self, name: str, scope: Scope) -> str | None:
        """Returns the type that ONNX gives a tensor; None where unknown, or no kind of number."""
        tensor = self._types.of(name, scope)
        is_number = tensor is not None and ("float" in tensor.dtype or is_integer(tensor.dtype))
        return tensor.dtype if tensor is not None and is_number else None

    def _by(self, node: Node) -> str | None:
        """Returns the type of the elements that a node passes on."""
        if operators.is_qonnx_quantizer(node.domain, node.op_type):
            return self._rounded(node) or self.declared(node.outputs[0], node.scope)
        moved = [name for name in node.inputs if name]
        moved = moved if node.op_type == "Concat" else moved[:1]
        dtypes = [self.of(name, node.scope) for name in moved]
        declared = self.declared(node.outputs[0], node.scope)
        if declared is not None and is_integer(declared):
            is_narrow = node.op_type == "Clip" or declared not in dtypes
            return self._limited(node, declared) if is_narrow else declared
        if node.op_type == "Clip":
            return declared
        floats = (each for each in dtypes if each is None or not is_integer(each))
        integers = (each for each in dtypes if each is not None)
        return next(floats, max(integers, key=width, default=None))

    def _rounded(self, node: Node) -> str | None:
        """Returns the type that a node of QONNX rounds to; None where its bits are not stored."""

        def stored(index: int) -> Array | None:
            name = node.inputs[index] if index < len(node.inputs) else ""
            return self._stored.value(name, node.scope) if name else None

        return dtype_of(node, stored)

    def _limited(self, node: Node, declared: str) -> str:
        """Returns the type that holds the integers of a node's output, as `int2` or `uint2`."""
        try:
            found = self._ranges.of(node.outputs[0], node.scope)
        except IndexError:  # fewer or more inputs than an operator has
            return declared
        if not math.isfinite(found.low) or not math.isfinite(found.high):
            return declared
        low, high = int(found.low), int(found.high)
        if low >= 0:
            return f"uint{max(1, high.bit_length())}"
        return f"int{1 + max((-low - 1).bit_length(), max(high, 0).bit_length())}"


def is_integer(dtype: str) -> bool:
    """Returns whether a type is one of integers, of any width: `int2`, `uint8`."""
    return dtype.startswith(("int", "uint"))


def width(dtype: str) -> int:
    """Returns the bits of a type of numbers, also of integers that ONNX has no type of: `int3`."""
    prefix = dtype.rstrip("0123456789")
    return int(dtype[len(prefix) :]) if is_integer(dtype) else bits_of(dtype) or 0
