"""The types of the factors that a node multiplies: integers or floats, and their widths."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tracer.accumulators.engine.stored_values import StoredValues
from tracer.accumulators.engine.tensor_scales import ELEMENTS_KEPT, TensorScales
from tracer.accumulators.engine.value_ranges import ValueRanges
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.policy import Rule
from tracer.graph.dataflow import Address, Dataflow
from tracer.graph.model import Model, Node, Scope
from tracer.graph.quantized import computes_in_integers, multiplies_packed_integers
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import bits_of

_DYNAMIC_BITS = 8
"""Bits that an operator rounds float activations to, if it multiplies them as integers."""
_FACTORS = {
    # (domain, operator): input indices of its two factors
    **dict.fromkeys(
        [("", name) for name in ("Conv", "ConvTranspose", "DeformConv", "Gemm", "MatMul", "Einsum",
                                 "RNN", "GRU", "LSTM", "Attention", "ConvInteger",
                                 "MatMulInteger")]
        + [("com.microsoft", name) for name in ("FusedConv", "FusedGemm", "FusedMatMul",
                                                "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
                                                "MatMulIntegerToFloat", "MatMulInteger16",
                                                "MatMulNBits", "QAttention")],
        (0, 1),
    ),
    **dict.fromkeys(
        [("", "QLinearConv"), ("", "QLinearMatMul"), ("com.microsoft", "QLinearConv"),
         ("com.microsoft", "QGemm")],
        (0, 3),
    ),
}  # fmt: skip
_TYPES = {
    "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
    "fp8-e4m3": "float8_e4m3fn", "fp8-e5m2": "float8_e5m2",
    "fp8-e4m3fnuz": "float8_e4m3fnuz", "fp8-e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
"""Formats of operands and accumulators that are types of ONNX."""
_OTHERS = (0, 0)
"""Both factors of other operators have the type of the first input."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Bits of both factors of a node; `float_type`, as `float16`, if they are floats.

    `adder` is the type of the float accumulator that adds products; None adds products of integers
    as integers, and products of floats in their type.
    """

    activation_bits: int
    weight_bits: int
    float_type: str | None = None
    adder: str | None = None


def operands(
    model: Model, types: TensorTypes, rules: Mapping[str, Rule] | None = None
) -> dict[str, Operands]:
    """Returns the operands of every node by key, without nodes whose operands have no such type.

    In a QDQ model they have the type before DequantizeLinear, also where operators that only move
    elements are between. Integers that a Clip limits have the bits that its limits need: so QCDQ
    models store fewer than 8 bits. A node multiplies floats if either factor is a float. `rules` of
    narrow nodes have the fixed-point formats of float operands.
    """
    ranges = ValueRanges(model, StoredValues(model))
    reader = _Reader(types, model.dataflow, TensorScales(model), ranges)
    for node in model.nodes:
        reader.pass_on(node)
    found = {node.key: reader.operands(node, (rules or {}).get(node.key)) for node in model.nodes}
    return {key: each for key, each in found.items() if each is not None}


@dataclass(frozen=True, slots=True)
class _Reader:
    types: TensorTypes
    flow: Dataflow
    scales: TensorScales
    ranges: ValueRanges
    quantized: dict[Address, str | None] = field(default_factory=dict)
    """Types before DequantizeLinear, of its outputs and of tensors with their elements."""

    def pass_on(self, node: Node) -> None:
        """Keeps the type that elements had before they were dequantised; makers come first."""
        if node.domain or (
            node.op_type != "DequantizeLinear" and node.op_type not in ELEMENTS_KEPT
        ):
            return
        if node.op_type == "DequantizeLinear":
            before = self._quantized(node.inputs[0], node.scope)
        else:
            moved = [name for name in node.inputs if name]
            moved = moved if node.op_type == "Concat" else moved[:1]
            dtypes = [self._before_dequantising(name, node.scope) for name in moved]
            others = (each for each in dtypes if each is None or not _is_integer(each))
            before = next(others, dtypes[0] if dtypes else None)
        self.quantized.update(dict.fromkeys(self.flow.outputs_of(node), before))

    def operands(self, node: Node, rule: Rule | None) -> Operands | None:
        """Returns the operands of one node; None where a type is unknown or not a number."""
        indices = _FACTORS.get((node.domain, node.op_type), _OTHERS)
        present = [index for index in indices if index < len(node.inputs) and node.inputs[index]]
        if not present:
            return None
        packed = self._packed(node) if _adder(rule) is None else None
        factors = packed or [self._factor(node, index, rule) for index in present]
        if any(dtype is None for dtype in factors):
            return None
        dtypes = [dtype for dtype in factors if dtype is not None]
        floats = [dtype for dtype in dtypes if not _is_integer(dtype)]
        bits = [_bits(dtype) for dtype in (floats[:1] or dtypes)]
        return Operands(bits[0], bits[-1], floats[0] if floats else None, _adder(rule))

    def _packed(self, node: Node) -> list[str | None] | None:
        """Returns the types of factors that MatMulNBits multiplies as integers; None for others."""
        if not multiplies_packed_integers(node):
            return None
        zeros = (*node.inputs, "")[3]
        if zeros and self._of_tensor(zeros, node.scope) != "uint8":
            return None
        bits = next((a.i for a in node.proto.attribute if a.name == "bits"), 4)
        return [f"int{_DYNAMIC_BITS}", f"uint{bits}"]

    def _factor(self, node: Node, index: int, rule: Rule | None) -> str | None:
        """Returns the type of the factor at `index`; a fixed-point format as `int8`."""
        name = node.inputs[index]
        own = self._of_tensor(name, node.scope)
        if own is None or _is_integer(own):
            return own
        if rule is not None and _adder(rule) is not None:
            return own if rule.operands is None else _type_of(rule.operands.format_name)
        if rule is not None and rule.format is not None:
            weights = index > 0 and self.scales.constant(name, node.scope)
            return f"int{(rule.format.weights if weights else rule.format.activations).bits}"
        if computes_in_integers(node.op_type):
            return f"int{_DYNAMIC_BITS}"
        return self._before_dequantising(name, node.scope)

    def _before_dequantising(self, name: str, scope: Scope) -> str | None:
        """Returns the type of the quantised tensor behind a float tensor, else its own type."""
        address = self.flow.address(name, scope)
        if address in self.quantized:
            return self.quantized[address]
        return self._of_tensor(name, scope)

    def _quantized(self, name: str, scope: Scope) -> str | None:
        """Returns the type of a tensor; where a Clip limits it, `int2` or `uint2` by the limits."""
        own = self._of_tensor(name, scope)
        maker = self.flow.makers.get(self.flow.address(name, scope))
        if own is None or not _is_integer(own) or maker is None or maker.op_type != "Clip":
            return own
        found = self.ranges.of(name, scope)
        if not math.isfinite(found.low) or not math.isfinite(found.high):
            return own
        low, high = int(found.low), int(found.high)
        if low >= 0:
            return f"uint{max(1, high.bit_length())}"
        return f"int{1 + max((-low - 1).bit_length(), max(high, 0).bit_length())}"

    def _of_tensor(self, name: str, scope: Scope) -> str | None:
        """Returns the type of a tensor; None where unknown, or neither integer nor float."""
        tensor = self.types.of(name, scope)
        is_number = tensor is not None and ("float" in tensor.dtype or _is_integer(tensor.dtype))
        return tensor.dtype if tensor is not None and is_number else None


def _adder(rule: Rule | None) -> str | None:
    """Returns the type that a float accumulator adds in: that of its format, if it has one."""
    if rule is None or isinstance(rule.accumulator, Accumulator):
        return None
    if isinstance(rule.accumulator, FloatAccumulator):
        return _type_of(str(rule.accumulator.format))
    return str(rule.accumulator)


def _type_of(spelling: str) -> str:
    """Returns the name of ONNX for a format, else its spelling."""
    return _TYPES.get(spelling, spelling)


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _bits(dtype: str) -> int:
    prefix = dtype.rstrip("0123456789")
    return int(dtype[len(prefix) :]) if _is_integer(dtype) else bits_of(dtype) or 0
