"""Matrix products of floats, integers and packed bits: K MACs per output, a bias one addition."""

import math

from tracer.analyzers.cost.count import Count, Operation, UnknownWorkError, counts
from tracer.analyzers.cost.rules.elementwise import PER_ELEMENT, per_element
from tracer.analyzers.cost.rules.quantization import (
    DEQUANTISE,
    REQUANTISE,
    dynamic_quantise,
    zero_points,
)


@counts("MatMul")
@counts("MatMulInteger16", domain="com.microsoft")
def product(op: Operation) -> Count:
    """Counts the MACs of `input 0 @ input 1`, batched and broadcast as in numpy."""
    return Count(macs=op.output().size * op.input(0).shape[-1])


@counts("MatMulInteger", settings=(2, 3))
def _matmul_integer(op: Operation) -> Count:
    return product(op) + zero_points(op, ((0, 2), (1, 3)))


@counts("QLinearMatMul", settings=(1, 2, 4, 5, 6, 7))
def _qlinear_matmul(op: Operation) -> Count:
    offsets = zero_points(op, ((0, 2), (3, 5)))
    return product(op) + offsets + REQUANTISE * op.output().size


@counts("Gemm")
def gemm(op: Operation) -> Count:
    """Counts alpha A B + beta C; a factor of 1 costs nothing."""
    inner = op.input(0).shape[0 if op.integer("transA", 0) else 1]
    outputs = op.output().size
    count = Count(macs=outputs * inner)
    if op.number("alpha", 1.0) != 1.0:
        count += Count(muls=outputs)
    beta = op.number("beta", 1.0)
    if op.has(2) and beta != 0.0:
        count += Count(adds=outputs, muls=op.input(2).size if beta != 1.0 else 0)
    return count


@counts("FusedGemm", domain="com.microsoft")
def _fused_gemm(op: Operation) -> Count:
    return gemm(op) + per_element(op.text("activation", "")) * op.output().size


@counts("GemmFastGelu", domain="com.microsoft")
def _gemm_fast_gelu(op: Operation) -> Count:
    outputs = op.output().size
    return product(op) + Count(adds=outputs if op.has(2) else 0) + PER_ELEMENT["FastGelu"] * outputs


@counts("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domain="com.microsoft")
def _fused_matmul(op: Operation) -> Count:
    """Counts alpha A B, with A or B transposed or not, and an activation.

    transBatchA puts the first axis before the last; transA exchanges the last two afterwards.
    """
    shape, outputs = op.input(0).shape, op.output().size
    rows = 0 if op.integer("transBatchA", 0) else -2
    inner = shape[rows] if op.integer("transA", 0) and len(shape) > 1 else shape[-1]
    scale = Count(muls=outputs if op.number("alpha", 1.0) != 1.0 else 0)
    return Count(macs=outputs * inner) + scale + per_element(op.text("activation", "")) * outputs


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
    has_float_zeros = op.has(3) and op.input(3).dtype != "uint8"
    if op.integer("accuracy_level", 0) != 4 or op.has(4) or has_float_zeros:
        return macs + DEQUANTISE * _weights(op)
    blocks = -(-op.integer("K", 0) // max(op.integer("block_size", 0), 1))
    rounding = Count(muls=1, other=2) * op.input(0).size  # find the largest, scale, round
    return macs + rounding + Count(adds=_weights(op)) + Count(adds=1, muls=2) * (outputs * blocks)


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


@counts("Einsum")
def _einsum(op: Operation) -> Count:
    """Counts the terms of the loop nest; each term is a product of all operands.

    If a label is summed, a term of two operands is a MAC, each further operand adds a
    multiplication, and a term of one operand is an addition. Else only multiplications count.
    """
    sizes, output_labels = _labels(op)
    terms = math.prod(sizes.values())
    operands = len(op.node.inputs)
    if output_labels == set(sizes):
        return Count(muls=operands - 1) * terms
    if operands == 1:
        return Count(adds=terms)
    return Count(macs=1, muls=operands - 2) * terms


def _labels(op: Operation) -> tuple[dict[str, int], set[str]]:
    """Returns the size of every label, and the labels of the output."""
    left, arrow, right = op.text("equation", "").replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for index, term in enumerate(left.split(",")):
        shape = op.input(index).shape
        labels = _expand(term, len(shape))
        if len(labels) != len(shape):
            raise UnknownWorkError(f"'{term}' does not fit the shape {list(shape)}")
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size)
    if not arrow:  # without an output term: the labels that occur once, and the ellipsis
        return sizes, {name for name in sizes if left.count(name) == 1 or name.startswith(".")}
    return sizes, set(_expand(right, len(op.output().shape)))


def _expand(term: str, rank: int) -> list[str]:
    """Returns a label per axis; axes of an ellipsis are numbered from the last, to broadcast."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f".{axis}" for axis in range(hidden, 0, -1)), *after]
