"""onnxruntime's matrix products with quantised weights or activations."""

from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts
from tracer.analyzers.cost.rules.matmul import product
from tracer.analyzers.cost.rules.quantization import (
    DEQUANTISE,
    REQUANTISE,
    dynamic_quantise,
    zero_points,
)

_MICROSOFT = "com.microsoft"


def _weights(op: Operation) -> int:
    """Returns the weights of a matrix [K, N] that is stored as blocks of packed bits."""
    return op.integer("K", 0) * op.integer("N", 0)


@counts("MatMulNBits", domain=_MICROSOFT, settings=(2, 3, 4), packed={1: _weights})
def _n_bits(op: Operation) -> Count:
    """Counts A times the weights, and dequantising each weight once.

    The default zero point is the middle of the range. At accuracy level 4 activations are rounded
    in blocks, a weight loses its zero point alone, and the sums of blocks are scaled and added.
    """
    outputs = op.output().size
    macs = Count(macs=outputs * op.integer("K", 0), adds=outputs if op.has(5) else 0)
    if not _rounds_activations(op):
        return macs + DEQUANTISE * _weights(op)
    blocks = -(-op.integer("K", 0) // max(op.integer("block_size", 0), 1))
    rounding = Count(muls=1, other=2) * op.input(0).size  # find the largest, scale, round
    return macs + rounding + Count(adds=_weights(op)) + Count(adds=1, muls=2) * (outputs * blocks)


def _rounds_activations(op: Operation) -> bool:
    """Whether activations may be rounded to 8 bits: not with groups, nor float zero points."""
    floats = op.has(3) and op.input(3).dtype != "uint8"
    return op.integer("accuracy_level", 0) == 4 and not op.has(4) and not floats


@counts("MatMulBnb4", domain=_MICROSOFT, settings=(2,), packed={1: _weights})
def _bnb4(op: Operation) -> Count:
    """Looks up and scales each weight once."""
    return Count(macs=op.output().size * op.integer("K", 0), muls=_weights(op))


@counts("DynamicQuantizeMatMul", domain=_MICROSOFT, settings=(2, 3))
def _dynamic(op: Operation) -> Count:
    """Quantises A by its range, multiplies integers, scales, and adds the bias."""
    outputs = op.output().size
    scaled = Count(adds=outputs if op.has(4) else 0, muls=outputs)
    return dynamic_quantise(op.input(0).size) + product(op) + zero_points(op, ((1, 3),)) + scaled


@counts("MatMulIntegerToFloat", domain=_MICROSOFT, settings=(2, 3, 4, 5))
def _integer_to_float(op: Operation) -> Count:
    outputs = op.output().size
    scaled = Count(adds=outputs if op.has(6) else 0, muls=outputs)
    return product(op) + zero_points(op, ((0, 4), (1, 5))) + scaled


@counts("QGemm", domain=_MICROSOFT, settings=(1, 2, 4, 5, 7, 8))
def _qgemm(op: Operation) -> Count:
    """Multiplies integers; the result is quantised if the output's scale is present."""
    outputs = op.output().size
    inner = op.input(0).shape[0 if op.integer("transA", 0) else 1]
    offsets = zero_points(op, ((0, 2), (3, 5)))
    result = (REQUANTISE if op.has(7) else Count(muls=1)) * outputs
    return Count(macs=outputs * inner, adds=outputs if op.has(6) else 0) + offsets + result
