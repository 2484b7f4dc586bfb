"""MatMulNBits, domain com.microsoft: a product with packed weights of 2, 4 or 8 bits."""

from dataclasses import dataclass
from typing import Any

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
    product = packed_product(
        A, B, scales, zero_points, g_idx, bias, K=K, N=N, accuracy_level=accuracy_level, bits=bits,
        block_size=block_size, weight_prepacked=weight_prepacked,
    )  # fmt: skip
    limits.allow(product.shape, np.float32)
    if product.rounds_activations:
        return product.output(integer_product(product.rows, product.weights))
    return product.output(_float_product(product.rows, product.weights, product.groups))


@dataclass(frozen=True, slots=True)
class PackedProduct:
    """Activations `rows` [rows, K], float32, times `weights` [N, K].

    `groups` choose scale and zero point of each of K; None takes those of its block. The `bias` [N]
    is added, and the output has `shape` and `dtype`. `rounds_activations` says that activations are
    rounded to 8 bits in blocks, so that products are integers.
    """

    rows: Array
    weights: BlockWeights
    groups: Array | None
    bias: Array | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rounds_activations: bool

    def output(self, sums: Array) -> Array:
        """Returns the output of sums [rows, N], float32, which are changed in place."""
        if self.bias is not None:
            sums += self.bias
        return sums.reshape(self.shape).astype(self.dtype, copy=False)


def packed_product(
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
) -> PackedProduct:
    """Returns the product of the inputs of a node. Raises ModelError if they do not fit."""
    if weight_prepacked:
        raise ModelError(
            f"weight_prepacked is {weight_prepacked}: the layout of one CUDA device",
            "Export the model without prepacked weights.",
        )
    _check_activations(A, K, N, bias)
    weights = stored(B, scales, zero_points, N, K, bits, block_size)
    rounds = accuracy_level == INT8_ACTIVATIONS and g_idx is None
    return PackedProduct(
        A.reshape(-1, K).astype(np.float32, copy=False),
        weights,
        None if g_idx is None else _groups(g_idx, weights),
        bias,
        (*A.shape[:-1], N),
        A.dtype,
        rounds and has_integer_kernel(bits, block_size, weights.zeros.dtype == np.uint8),
    )


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
    return _float_product(rows, weights, None)


def integer_product(rows: Array, weights: BlockWeights) -> Array:
    """Returns rows times weights by integer products of blocks, scaled and added in float32.

    Integer products are exact: float32 holds 256 products of 127 and 255.
    """
    codes, steps = rounded_activations(rows, weights)
    output = np.zeros((len(rows), len(weights.codes)), np.float32)
    for piece in weights.pieces():
        centred = weights.centred(piece).transpose(1, 2, 0)
        scales = weights.scales[piece].astype(np.float32)
        for block, numbers in enumerate(codes):
            dots = products.matmul(np.ascontiguousarray(numbers), centred[block])
            output[:, piece] += scaled(dots, steps[block], scales[:, block])
    return output


def rounded_activations(rows: Array, weights: BlockWeights) -> tuple[Array, Array]:
    """Returns the codes [blocks, rows, block] of activations, and their scales [blocks, rows].

    An activation has the code rint(127 a / max |a|) of its block, and the scale max |a| / 127. Both
    are float32; the last block is filled up with 0.
    """
    blocks = weights.scales.shape[1]
    padding = blocks * weights.block - weights.depth
    split = np.pad(rows, ((0, 0), (0, padding))).reshape(len(rows), blocks, weights.block)
    largest = np.abs(split).max(axis=2)
    inverse = np.divide(_LARGEST, largest, out=np.zeros_like(largest), where=largest > _LEAST)
    codes = np.rint(split * inverse[..., None]).transpose(1, 0, 2)
    return codes, (largest / _LARGEST).T


def scaled(dots: Array, steps: Array, scales: Array) -> Array:
    """Returns the products [rows, N], float32, of one block times scales of rows and columns."""
    return dots * (steps[:, None] * scales)


def dequantized(weights: BlockWeights, rows: slice, groups: Array | None) -> Array:
    """Returns some rows of the weights as float32 [rows, depth]."""
    if groups is None:
        return weights.dequantized(rows)
    codes = unpacked(weights.codes[rows], weights.bits, weights.depth).astype(np.float32)
    centred = codes - weights.zeros[rows][:, groups].astype(np.float32)
    return centred * weights.scales[rows][:, groups].astype(np.float32)


def has_integer_kernel(bits: int, block: int, has_packed_zeros: bool) -> bool:
    """Whether onnxruntime has a kernel for rounded activations; measured with 1.31.1."""
    return has_packed_zeros and (bits > 2 or 16 < block < 256)


def _float_product(rows: Array, weights: BlockWeights, groups: Array | None) -> Array:
    output = np.empty((len(rows), len(weights.codes)), np.float32)
    for piece in weights.pieces():
        output[:, piece] = products.matmul(rows, dequantized(weights, piece, groups).T)
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


def _check_activations(A: Array, K: int, N: int, bias: Array | None) -> None:
    if A.shape[-1:] != (K,):
        raise ModelError(f"A has {list(A.shape)[-1:]} columns, and K is {K}")
    if bias is not None and bias.shape != (N,):
        raise ModelError(f"the bias is {list(bias.shape)}, and N is {N}")
