"""MatMulNBits, domain com.microsoft: a product with packed weights of 2, 4 or 8 bits."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input, value_of
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


def check_inputs(
    A: Input,
    B: Input,
    scales: Input,
    zero_points: Input | None = None,
    g_idx: Input | None = None,
    bias: Input | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    if A.shape[-1:] != (K,):
        raise ModelError(f"A has {list(A.shape)[-1:]} columns, and K is {K}")
    if bias is not None and bias.shape != (N,):
        raise ModelError(f"the bias is {list(bias.shape)}, and N is {N}")
    block_weights.check_bits(bits)
    block_weights.check_block(block_size)
    blocks = -(-K // block_size)
    _check_weights(B, scales, N, blocks, bits, block_size)
    _check_zeros(zero_points, N, blocks, bits)
    _check_groups(g_idx, K, blocks, block_size)


@operator("MatMulNBits", domain=DOMAIN, check=check_inputs)
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
    takes it with 4 bits alone, and ignores packed zero points then. Raises ModelError for
    weights of a CUDA device.
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
    """Returns the product of inputs that fit. Raises ModelError for weights of a CUDA device."""
    if weight_prepacked:
        raise ModelError(
            f"weight_prepacked is {weight_prepacked}: the layout of one CUDA device",
            "Export the model without prepacked weights.",
        )
    blocks = -(-K // block_size)
    zeros = _zeros(zero_points, N, blocks, bits)
    weights = BlockWeights(B.reshape(N, -1), scales.reshape(N, blocks), zeros, bits, block_size, K)
    rounds = accuracy_level == INT8_ACTIVATIONS and g_idx is None
    return PackedProduct(
        A.reshape(-1, K).astype(np.float32, copy=False),
        weights,
        None if g_idx is None else g_idx[:K],
        bias,
        (*A.shape[:-1], N),
        A.dtype,
        rounds and has_integer_kernel(bits, block_size, weights.zeros.dtype == np.uint8),
    )


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


def _zeros(zero_points: Array | None, rows: int, blocks: int, bits: int) -> Array:
    """Returns the zero point of each block: packed like the weights, or a float each."""
    if zero_points is None:
        return np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    if zero_points.dtype != np.uint8:
        return zero_points.reshape(rows, blocks)
    return unpacked(zero_points.reshape(rows, packed_bytes(blocks, bits)), bits, blocks)


def _check_weights(
    codes: Input, scales: Input, rows: int, blocks: int, bits: int, block_size: int
) -> None:
    expected = (rows, blocks, packed_bytes(block_size, bits))
    if codes.dtype != np.uint8 or codes.size != np.prod(expected):
        raise ModelError(
            f"B is {codes.dtype}{list(codes.shape)}, not uint8{list(expected)}",
            f"That is N, blocks of {block_size} in K, bytes of {bits} bits a weight.",
        )
    if scales.size != rows * blocks:
        raise ModelError(
            f"scales are {list(scales.shape)}, not one for each block, {[rows, blocks]}"
        )


def _check_zeros(zero_points: Input | None, rows: int, blocks: int, bits: int) -> None:
    if zero_points is None:
        return
    each = packed_bytes(blocks, bits) if zero_points.dtype == np.uint8 else blocks
    if zero_points.size != rows * each:
        raise ModelError(
            f"zero_points are {zero_points.dtype}{list(zero_points.shape)}, not {[rows, each]}",
            "They are packed in bytes like B, or have the type of A.",
        )


def _check_groups(g_idx: Input | None, depth: int, blocks: int, block_size: int) -> None:
    """Refuses a number of groups other than one for each of K, and groups without a scale."""
    if g_idx is None:
        return
    if g_idx.ndim != 1 or not depth <= g_idx.size <= blocks * block_size:
        raise ModelError(f"g_idx is {list(g_idx.shape)}, not one group for each of K = {depth}")
    groups = value_of(g_idx)
    if groups is None or not depth:
        return
    low, high = groups[:depth].min(), groups[:depth].max()
    if not 0 <= low <= high < blocks:
        raise ModelError(f"g_idx has groups {low} to {high}, and there are {blocks}, from 0")
