"""Quantisation and dequantisation, also those of QONNX, and operators on quantised tensors."""

from tracer.analyzers.cost.count import Count, Operation, counts, per_input, per_output, selects
from tracer.analyzers.cost.rules import reduction
from tracer.analyzers.cost.rules.elementwise import PER_ELEMENT
from tracer.graph.operators import MICROSOFT, QONNX_DOMAIN

REQUANTISE = Count(adds=1, muls=1, other=3)
"""Per output of a quantised operator: scale, round, add the zero point, clamp to both ends."""

DEQUANTISE = Count(adds=1, muls=1)
"""Subtract the zero point, scale."""

_QUANTISE = Count(adds=1, other=4)
"""Divide by the scale, round, add the zero point, clamp to both ends."""


@counts("QuantizeLinear", domain=("", MICROSOFT), settings=(1, 2))
def _quantize(op: Operation) -> Count:
    return Count(adds=int(op.has(2)), other=_QUANTISE.other) * op.output().size


@counts("DequantizeLinear", domain=("", MICROSOFT), settings=(1, 2))
def _dequantize(op: Operation) -> Count:
    return Count(adds=int(op.has(2)), muls=1) * op.output().size


DYNAMIC_QUANTISE = Count(other=2) + _QUANTISE
"""Compare with both ends of the range, and quantise; the scale itself is not counted."""

counts("DynamicQuantizeLinear")(per_input(DYNAMIC_QUANTISE))


def zero_points(op: Operation, pairs: tuple[tuple[int, int], ...]) -> Count:
    """Counts one subtraction per element of each operand whose zero point is present."""
    return Count(adds=sum(op.input(data).size for data, zero in pairs if op.has(zero)))


_QUANT = Count(adds=2, muls=1, other=4)
"""Divide, add the zero point, clamp to both ends, round, subtract it, scale."""
_TRUNC = Count(adds=2, muls=1, other=4)
"""Divide, add the zero point, round, divide, round, subtract it, scale."""
_CLAMP = Count(other=2)
_BIPOLAR = Count(muls=1, other=1)
"""Compare with 0, scale."""
_FLOAT = Count(muls=2, other=7)
"""Divide by the scale, the exponent, clamp it, the step, divide by it, round, multiply by it, clamp
to both ends, scale."""

counts("Quant", "IntQuant", domain=QONNX_DOMAIN, settings=(1, 2, 3))(per_output(_QUANT))
counts("BipolarQuant", domain=QONNX_DOMAIN, settings=(1,))(per_output(_BIPOLAR))
counts("FloatQuant", domain=QONNX_DOMAIN, settings=(1, 2, 3, 4, 5))(per_output(_FLOAT))


@counts("Trunc", domain=QONNX_DOMAIN, settings=(1, 2, 3, 4, 5))
def _trunc(op: Operation) -> Count:
    """Version 2, with six inputs, clamps."""
    return (_TRUNC + _CLAMP if op.has(5) else _TRUNC) * op.output().size


@counts("MultiThreshold", domain=QONNX_DOMAIN)
def _multi_threshold(op: Operation) -> Count:
    """Compares with each threshold of the channel, adds what is reached, scales, adds the bias."""
    steps = op.input(1).shape[-1]
    return Count(adds=steps + 1, muls=1, other=steps) * op.output().size


_UNARY = {
    "QLinearLeakyRelu": PER_ELEMENT["LeakyRelu"],
    "QLinearSigmoid": PER_ELEMENT["Sigmoid"],
    "QLinearSoftmax": reduction.PER_ELEMENT,
}
_BINARY = {"QLinearAdd": Count(adds=1), "QLinearMul": Count(muls=1)}
"""Work per element between dequantising and requantising."""

_CONVERT = DEQUANTISE + REQUANTISE
for _name, _count in _UNARY.items():
    counts(_name, domain=MICROSOFT, settings=(1, 2, 3, 4))(per_output(_CONVERT + _count))
counts("QLinearConcat", domain=MICROSOFT, settings=(0, 1))(per_output(_CONVERT))
counts("QLinearWhere", domain=MICROSOFT, settings=(0, 2, 3, 5, 6, 7, 8))(per_output(_CONVERT))


@counts(*_BINARY, domain=MICROSOFT, settings=(1, 2, 4, 5, 6, 7))
def _binary(op: Operation) -> Count:
    operands = op.input(0).size + op.input(3).size
    return DEQUANTISE * operands + (_BINARY[op.op_type] + REQUANTISE) * op.output().size


@counts("QLinearGlobalAveragePool", "QLinearReduceMean", domain=MICROSOFT, settings=(1, 2, 3, 4))
def _mean(op: Operation) -> Count:
    return Count(adds=op.input(0).size) + (Count(other=1) + REQUANTISE) * op.output().size


def _unpacked(op: Operation) -> int:
    """Returns the elements of the table: two in a byte, one in an element of a 4-bit type."""
    table = op.input(0)
    return table.size * (8 // op.integer("bits", 4)) if table.dtype == "uint8" else table.size


counts("GatherBlockQuantized", domain=MICROSOFT, moves=selects, settings=(1, 2, 3),
       packed={0: _unpacked})(per_output(DEQUANTISE))  # fmt: skip
