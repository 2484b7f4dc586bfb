"""Quantisation and dequantisation."""

from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts

REQUANTISE = Count(adds=1, muls=1, other=3)
"""Per output of a quantised operator: scale, round, add the zero point, clamp to both ends."""

DEQUANTISE = Count(adds=1, muls=1)
"""Subtract the zero point, scale."""

_QUANTISE = Count(adds=1, other=4)
"""Divide by the scale, round, add the zero point, clamp to both ends."""


@counts("QuantizeLinear", settings=(1, 2))
@counts("QuantizeLinear", domain="com.microsoft", settings=(1, 2))
def _quantize(op: Operation) -> Count:
    return Count(adds=int(op.has(2)), other=_QUANTISE.other) * op.output().size


@counts("DequantizeLinear", settings=(1, 2))
@counts("DequantizeLinear", domain="com.microsoft", settings=(1, 2))
def _dequantize(op: Operation) -> Count:
    return Count(adds=int(op.has(2)), muls=1) * op.output().size


@counts("DynamicQuantizeLinear")
def _dynamic_quantize(op: Operation) -> Count:
    return dynamic_quantise(op.input(0).size)


def dynamic_quantise(elements: int) -> Count:
    """Counts comparing with both ends of the range, and quantising; not the scale itself."""
    return (Count(other=2) + _QUANTISE) * elements


def zero_points(op: Operation, pairs: tuple[tuple[int, int], ...]) -> Count:
    """Counts one subtraction per element of each operand whose zero point is present."""
    return Count(adds=sum(op.input(data).size for data, zero in pairs if op.has(zero)))
