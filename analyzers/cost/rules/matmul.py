"""Matrix products of floats, integers and packed bits: K MACs per output, a bias one addition.

Other linear algebra, and transforms of signals.
"""

import math
from collections.abc import Callable
from functools import partial

from tracer.analyzers.cost.count import (
    Bytes,
    Count,
    Operation,
    UnknownWorkError,
    counts,
    known_sum,
    per_input,
    require,
    total,
)
from tracer.analyzers.cost.rules import reduction
from tracer.analyzers.cost.rules.elementwise import PER_ELEMENT, per_element, swish
from tracer.analyzers.cost.rules.quantization import (
    DEQUANTISE,
    DYNAMIC_QUANTISE,
    REQUANTISE,
    zero_points,
)
from tracer.graph.operators import MICROSOFT

_DENSE = ((2, 3), (4, 5), (6, 7))
"""Inputs of MoE: weights and bias of each layer."""
_PACKED = ((2, 4), (5, 7), (8, 10))
"""Inputs of QMoE: weights and bias of each layer; their scales are between them."""
_SCALES = (3, 6, 9, 11, 12, 13)
"""Inputs of QMoE: scales and zero points."""
_SWIGLU = Count(adds=1, muls=1, other=3)
"""Per element, beyond Swish: clip both parts, add beta, multiply."""


@counts("MatMul")
@counts("MatMulInteger16", domain=MICROSOFT)
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


@counts("FusedGemm", domain=MICROSOFT)
def _fused_gemm(op: Operation) -> Count:
    return gemm(op) + per_element(op.text("activation", "")) * op.output().size


@counts("GemmFastGelu", domain=MICROSOFT)
def _gemm_fast_gelu(op: Operation) -> Count:
    outputs = op.output().size
    return product(op) + Count(adds=outputs if op.has(2) else 0) + PER_ELEMENT["FastGelu"] * outputs


@counts("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domain=MICROSOFT)
def _fused_matmul(op: Operation) -> Count:
    """Counts alpha A B, with A or B transposed or not, and an activation.

    transBatchA puts the first axis before the last; transA exchanges the last two afterwards.
    """
    shape, outputs = op.input(0).shape, op.output().size
    rows = 0 if op.integer("transBatchA", 0) else -2
    inner = shape[rows] if op.integer("transA", 0) and len(shape) > 1 else shape[-1]
    right = op.input(1).known_shape
    if right and len(right) > 1:
        first = 0 if op.integer("transBatchB", 0) else -2
        require(inner == right[-1 if op.integer("transB", 0) else first])
    scale = Count(muls=outputs if op.number("alpha", 1.0) != 1.0 else 0)
    return Count(macs=outputs * inner) + scale + per_element(op.text("activation", "")) * outputs


def _weights(op: Operation) -> int:
    """Returns the weights of a matrix [K, N] that is stored as blocks of packed bits."""
    return op.integer("K", 0) * op.integer("N", 0)


@counts("MatMulNBits", domain=MICROSOFT, settings=(2, 3, 4), packed={1: _weights})
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


@counts("MatMulBnb4", domain=MICROSOFT, settings=(2,), packed={1: _weights})
def _bnb4(op: Operation) -> Count:
    """Looks up and scales each weight once."""
    return Count(macs=op.output().size * op.integer("K", 0), muls=_weights(op))


@counts("DynamicQuantizeMatMul", domain=MICROSOFT, settings=(2, 3))
def _dynamic(op: Operation) -> Count:
    """Quantises A by its range, multiplies integers, scales, and adds the bias."""
    outputs = op.output().size
    scaled = Count(adds=outputs if op.has(4) else 0, muls=outputs)
    rounding = DYNAMIC_QUANTISE * op.input(0).size
    return rounding + product(op) + zero_points(op, ((1, 3),)) + scaled


@counts("MatMulIntegerToFloat", domain=MICROSOFT, settings=(2, 3, 4, 5))
def _integer_to_float(op: Operation) -> Count:
    outputs = op.output().size
    scaled = Count(adds=outputs if op.has(6) else 0, muls=outputs)
    return product(op) + zero_points(op, ((0, 4), (1, 5))) + scaled


@counts("QGemm", domain=MICROSOFT, settings=(1, 2, 4, 5, 7, 8))
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
            require(1 in (size, sizes.get(label, 1)) or size == sizes[label])
            sizes[label] = max(sizes.get(label, 1), size)
    if not arrow:  # without an output term: the labels that occur once, and the ellipsis
        return sizes, {name for name in sizes if left.count(name) == 1 or name.startswith(".")}
    return sizes, set(_expand(right, len(op.output().shape)))


def _expand(term: str, rank: int) -> list[str]:
    """Returns a label per axis; axes of an ellipsis are numbered from the last, to broadcast."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f".{axis}" for axis in range(hidden, 0, -1)), *after]


@counts("Det")
def _determinant(op: Operation) -> Count:
    """Counts Gaussian elimination with n(n-1)/2 divisions, and the product of the diagonal."""
    n = op.input(0).shape[-1]
    updates = (n - 1) * n * (2 * n - 1) // 6
    one = Count(adds=updates, muls=updates + max(n - 1, 0), other=n * (n - 1) // 2)
    return one * (op.input(0).size // max(n * n, 1))


@counts("Inverse", domain=MICROSOFT)
def _inverse(op: Operation) -> Count:
    """Counts Gauss-Jordan elimination in place: n divisions for each of n pivots."""
    n = op.input(0).shape[-1]
    one = Count(adds=n * (n - 1) ** 2, muls=n * n * (n - 1), other=n * n)
    return one * (op.input(0).size // max(n * n, 1))


@counts("CDist", domain=MICROSOFT)
def _distances(op: Operation) -> Count:
    """Counts the squares of differences and their sum, and the root."""
    depth = op.input(0).shape[-1]
    roots = int(op.text("metric", "sqeuclidean") == "euclidean")
    return Count(adds=2 * depth, muls=depth, other=roots) * op.output().size


_CELL = Count(adds=1, other=2)  # the least of three neighbours, and the cost
counts("DynamicTimeWarping", domain=MICROSOFT)(per_input(_CELL))


@counts("DFT", settings=(1, 2))
def _dft(op: Operation) -> Count:
    shape = op.input(0).shape
    axis = op.integer("axis", 1) if op.opset < 20 else _scalar(op, 2, -2)
    length = _scalar(op, 1, shape[axis])
    transforms = op.input(0).size // max(shape[axis] * shape[-1], 1)
    return fft(length) * transforms


@counts("STFT", settings=(1, 2, 3))
def _stft(op: Operation) -> Count:
    batch, frames = op.output().shape[:2]
    length = op.input(2).shape[0] if op.has(2) else _scalar(op, 3, 0)
    parts = op.input(0).shape[2] if len(op.input(0).shape) == 3 else 1  # real, or complex
    window = Count(muls=length * parts if op.has(2) else 0)
    return (window + fft(length)) * (batch * frames)


def fft(length: int) -> Count:
    """Counts one transform of `length` complex points."""
    stages = math.ceil(math.log2(length)) if length > 1 else 0
    return Count(adds=3, muls=2) * (length * stages)


def _scalar(op: Operation, index: int, default: int) -> int:
    if not op.has(index):
        return default
    value = op.constant(index)
    if value is None:
        raise UnknownWorkError(f"'{op.node.inputs[index]}' is computed or fed")
    return int(value.reshape(-1)[0])


def _traffic(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads activations and routes whole, and of everything else the part of the experts."""
    names = op.node.inputs
    whole = {names[index] for index in (0, 1, 14) if op.has(index)}
    experts, used = op.input(2).shape[0], _used(op)
    stored = total(operand for operand in op.inputs() if operand.name not in whole)
    rest = total(operand for operand in op.inputs() if operand.name in whole)
    part = None if stored is None else stored * used // max(experts, 1)
    return known_sum((part, rest)), total(op.outputs())


@counts("MoE", domain=MICROSOFT, moves=_traffic)
def _moe(op: Operation) -> Count:
    return _experts(op, _DENSE, lambda index: op.input(index).size)


def _unpacked(op: Operation, index: int) -> int:
    """Returns the number of weights at an input, by the bits of its layer, or else of all."""
    layer = 1 + [weights for weights, _ in _PACKED].index(index)
    own_bits = op.integer(f"fc{layer}_expert_weight_bits", 0)
    return op.input(index).size * 8 // (own_bits or op.integer("expert_weight_bits", 4))


@counts("QMoE", domain=MICROSOFT, moves=_traffic, settings=_SCALES,
        packed={index: partial(_unpacked, index=index) for index, _ in _PACKED})  # fmt: skip
def _quantised_moe(op: Operation) -> Count:
    """Counts MoE, and dequantising each weight of the experts that are read once."""
    weights = [_unpacked(op, index) for index, _ in _PACKED if op.has(index)]
    each = sum(weights) // max(op.input(2).shape[0], 1)
    return _experts(op, _PACKED, partial(_unpacked, op)) + DEQUANTISE * (each * _used(op))


def _experts(
    op: Operation, layers: tuple[tuple[int, int], ...], weights: Callable[[int], int]
) -> Count:
    """Counts the router's softmax, the layers of the chosen experts, and the weighted sum."""
    tokens, experts = op.input(1).shape
    chosen = tokens * op.integer("k", 1)
    count = reduction.PER_ELEMENT * (tokens * experts)
    for index, bias in layers:
        if op.has(index):
            rows = op.input(index).shape[1]
            count += Count(macs=weights(index) // max(experts, 1)) * chosen
            count += Count(adds=rows if op.has(bias) else 0) * chosen
    return (
        count
        + _activation(op, layers) * chosen
        + Count(adds=1, muls=1) * (chosen * op.input(0).shape[-1])
    )


def _activation(op: Operation, layers: tuple[tuple[int, int], ...]) -> Count:
    """Counts what an expert does between its layers with one token."""
    rows = op.input(layers[0][0]).shape[1]
    name = op.text("activation_type", "relu")
    if name == "swiglu":
        inner = rows // 2 if op.integer("swiglu_fusion", 0) else rows
        return (swish(op.number("activation_alpha", 1.0)) + _SWIGLU) * inner
    gated = Count(muls=int(op.has(layers[2][0])))
    if name == "silu":
        return (swish(1.0) + gated) * rows
    known = {"identity": "none", "gelu": "FastGelu"}
    return (per_element(known.get(name, name)) + gated) * rows


def _used(op: Operation) -> int:
    """Returns how many experts the tokens choose at most."""
    tokens, experts = op.input(1).shape
    return min(experts, tokens * op.integer("k", 1))
