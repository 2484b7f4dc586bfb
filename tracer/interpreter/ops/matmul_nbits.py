"""MatMulNBits, domain com.microsoft: a product with packed weights of 2, 4 or 8 bits."""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import block_weights, products
from tracer.interpreter.numeric.block_weights import BlockWeights, packed_bytes, unpacked
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array

INT8_ACTIVATIONS = 4
"""The accuracy level that lets a kernel round activations to 8 bits."""

_LARGEST = np.float32(127)
"""The code of the largest activation of a block; the least is -127."""


_LEAST = np.float32(1e-36)
"""Blocks of smaller activations become 0: 127 divided by them is infinite in float32."""


@operator("MatMulNBits", domain=DOMAIN)
def matmul_nbits(
    A: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Array:
    """A (codes - zero points) scales + bias, in float32 for half precision.

    At accuracy level 4, activations are rounded to 8 bits in blocks as onnxruntime's kernels for
    x86 do it with stored weights. `g_idx` chooses scale and zero point of each of K; onnxruntime
    takes it with 4 bits alone, and ignores packed zero points then. Raises ModelError for inputs
    that do not fit the attributes.
    """
    if weight_prepacked:
        raise ModelError(
            f"weight_prepacked is {weight_prepacked}: the layout of one CUDA device",
            "Export the model without prepacked weights.",
        )
    _check_activations(A, K, N, bias)
    weights = stored(B, scales, zero_points, N, K, bits, block_size)
    limits.allow((*A.shape[:-1], N), np.float32)
    rows = A.reshape(-1, K).astype(np.float32, copy=False)
    if g_idx is not None:
        output = _by_group(rows, weights, _groups(g_idx, weights))
    elif accuracy_level == INT8_ACTIVATIONS and _has_integer_kernel(weights):
        output = integer_product(rows, weights)
    else:
        output = product(rows, weights)
    if bias is not None:
        output += bias
    return output.reshape(*A.shape[:-1], N).astype(A.dtype, copy=False)


def stored(
    B: Array,
    scales: Array,
    zero_points: Array | None,
    rows: int,
    depth: int,
    bits: int,
    block_size: int,
) -> BlockWeights:
    """Returns the weights [rows, depth] of the inputs of a node. Raises ModelError."""
    block_weights.check_bits(bits)
    block_weights.check_block(block_size)
    blocks = -(-depth // block_size)
    expected = (rows, blocks, packed_bytes(block_size, bits))
    if B.dtype != np.uint8 or B.size != np.prod(expected):
        raise ModelError(
            f"B is {B.dtype}{list(B.shape)}, not uint8{list(expected)}",
            f"That is N, blocks of {block_size} in K, bytes of {bits} bits a weight.",
        )
    if scales.size != rows * blocks:
        raise ModelError(
            f"scales are {list(scales.shape)}, not one for each block, {[rows, blocks]}"
        )
    zeros = _zeros(zero_points, rows, blocks, bits)
    codes = B.reshape(rows, -1)
    return BlockWeights(codes, scales.reshape(rows, blocks), zeros, bits, block_size, depth)


def product(rows: Array, weights: BlockWeights) -> Array:
    """Returns rows times the dequantised weights, transposed, in float32."""
    output = np.empty((len(rows), len(weights.codes)), np.float32)
    for piece in weights.pieces():
        output[:, piece] = products.matmul(rows, weights.dequantized(piece).T)
    return output


def integer_product(rows: Array, weights: BlockWeights) -> Array:
    """Returns rows times weights by integer products of blocks, scaled and added in float32.

    An activation has the code rint(127 a / max |a|) of its block, and the scale max |a| / 127.
    Integer products are exact: float32 holds 256 products of 127 and 255.
    """
    blocks = weights.scales.shape[1]
    padding = blocks * weights.block - weights.depth
    split = np.pad(rows, ((0, 0), (0, padding))).reshape(len(rows), blocks, weights.block)
    largest = np.abs(split).max(axis=2)
    inverse = np.divide(_LARGEST, largest, out=np.zeros_like(largest), where=largest > _LEAST)
    codes = np.rint(split * inverse[..., None]).transpose(1, 0, 2)
    steps = (largest / _LARGEST).T
    output = np.zeros((len(rows), len(weights.codes)), np.float32)
    for piece in weights.pieces():
        centred = weights.centred(piece).transpose(1, 2, 0)
        scales = weights.scales[piece].astype(np.float32)
        for block in range(blocks):
            dots = products.matmul(np.ascontiguousarray(codes[block]), centred[block])
            output[:, piece] += dots * (steps[block][:, None] * scales[:, block])
    return output


def _by_group(rows: Array, weights: BlockWeights, groups: Array) -> Array:
    """Returns rows times weights whose scales and zero points are chosen for each of K."""
    output = np.empty((len(rows), len(weights.codes)), np.float32)
    for piece in weights.pieces():
        codes = unpacked(weights.codes[piece], weights.bits, weights.depth).astype(np.float32)
        centred = codes - weights.zeros[piece][:, groups].astype(np.float32)
        chosen = centred * weights.scales[piece][:, groups].astype(np.float32)
        output[:, piece] = products.matmul(rows, chosen.T)
    return output


def _groups(g_idx: Array, weights: BlockWeights) -> Array:
    """Returns the group of each of K. Raises ModelError for groups without a scale."""
    blocks, depth = weights.scales.shape[1], weights.depth
    if g_idx.ndim != 1 or not depth <= g_idx.size <= blocks * weights.block:
        raise ModelError(f"g_idx is {list(g_idx.shape)}, not one group for each of K = {depth}")
    groups = g_idx[:depth]
    if groups.size and not 0 <= groups.min() <= groups.max() < blocks:
        raise ModelError(
            f"g_idx has groups {groups.min()} to {groups.max()}, and there are {blocks}, from 0"
        )
    return groups


def _zeros(zero_points: Array | None, rows: int, blocks: int, bits: int) -> Array:
    """Returns the zero point of each block: packed like the weights, or a float each."""
    if zero_points is None:
        return np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    packed = zero_points.dtype == np.uint8
    each = packed_bytes(blocks, bits) if packed else blocks
    if zero_points.size != rows * each:
        raise ModelError(
            f"zero_points are {zero_points.dtype}{list(zero_points.shape)}, not {[rows, each]}",
            "They are packed in bytes like B, or have the type of A.",
        )
    whole = zero_points.reshape(rows, each)
    return unpacked(whole, bits, blocks) if packed else whole


def _has_integer_kernel(weights: BlockWeights) -> bool:
    """Whether onnxruntime has a kernel for rounded activations; measured with 1.31.1."""
    return weights.zeros.dtype == np.uint8 and (weights.bits > 2 or 16 < weights.block < 256)


def _check_activations(A: Array, K: int, N: int, bias: Array | None) -> None:
    if A.shape[-1:] != (K,):
        raise ModelError(f"A has {list(A.shape)[-1:]} columns, and K is {K}")
    if bias is not None and bias.shape != (N,):
        raise ModelError(f"the bias is {list(bias.shape)}, and N is {N}")
