"""QONNX's operators: floats rounded to few bits, in floats."""

from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, per_output
from tracer.graph.qonnx import DOMAIN

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

counts("Quant", "IntQuant", domain=DOMAIN, settings=(1, 2, 3))(per_output(_QUANT))
counts("BipolarQuant", domain=DOMAIN, settings=(1,))(per_output(_BIPOLAR))
counts("FloatQuant", domain=DOMAIN, settings=(1, 2, 3, 4, 5))(per_output(_FLOAT))


@counts("Trunc", domain=DOMAIN, settings=(1, 2, 3, 4, 5))
def _trunc(op: Operation) -> Count:
    """Version 2, with six inputs, clamps."""
    return (_TRUNC + _CLAMP if op.has(5) else _TRUNC) * op.output().size


@counts("MultiThreshold", domain=DOMAIN)
def _multi_threshold(op: Operation) -> Count:
    """Compares with each threshold of the channel, adds what is reached, scales, adds the bias."""
    steps = op.input(1).shape[-1]
    return Count(adds=steps + 1, muls=1, other=steps) * op.output().size
