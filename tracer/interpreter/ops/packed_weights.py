"""MatMulNBits, MatMulBnb4 and GatherBlockQuantized, domain com.microsoft: weights of a few bits."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter import operators
from tracer.interpreter.numeric import products, tensors
from tracer.support.types import Array

INT8_ACTIVATIONS = 4
"""The accuracy level that lets a kernel round activations to 8 bits."""
_LARGEST = np.float32(127)
"""The code of the largest activation of a block; the least is -127."""
_LEAST = np.float32(1e-36)
"""Blocks of smaller activations become 0: 127 divided by them is infinite in float32."""
_FP4 = np.array([0, 1 / 192, 8 / 12, 1, 4 / 12, 6 / 12, 2 / 12, 3 / 12], np.float32)
"""The values of the codes 0 to 7 of FP4; codes 8 to 15 are their negatives."""
_NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
], np.float32)  # fmt: skip
"""The values of the codes of NF4 ("QLoRA", Dettmers et al. 2023, appendix E)."""
_TABLES = {0: np.concatenate([_FP4, -_FP4]), 1: _NF4}
"""Values of the 16 codes by `quant_type`."""


@dataclass(frozen=True, slots=True)
class PackedProduct:
    """Activations `rows` [rows, K], float32, times `weights` [N, K].

    `groups` choose scale and zero point of each of K; None takes those of its block. The `bias` [N]
    is added, and the output has `shape` and `dtype`. `rounds_activations` says that activations are
    rounded to 8 bits in blocks, so that products are integers.
    """

    rows: Array
    weights: tensors.BlockWeights
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
    A: Array, B: Array, scales: Array, zero_points: Array | None = None, g_idx: Array | None = None,
    bias: Array | None = None,
    *, K: int, N: int, accuracy_level: int = 0, bits: int = 4, block_size: int,
    weight_prepacked: int = 0,
) -> PackedProduct:  # fmt: skip
    """Returns the product of inputs that fit. Raises ModelError for weights of a CUDA device."""
    if weight_prepacked:
        raise ModelError(
            f"weight_prepacked is {weight_prepacked}: the layout of one CUDA device",
            "Export the model without prepacked weights.",
        )
    blocks = -(-K // block_size)
    if zero_points is None:
        zeros = np.full((N, blocks), 1 << (bits - 1), np.uint8)
    elif zero_points.dtype != np.uint8:  # a float for each block, else packed like the weights
        zeros = zero_points.reshape(N, blocks)
    else:
        zeros = tensors.unpacked(
            zero_points.reshape(N, tensors.packed_bytes(blocks, bits)), bits, blocks
        )
    weights = tensors.BlockWeights(
        B.reshape(N, -1), scales.reshape(N, blocks), zeros, bits, block_size, K
    )
    rounds = accuracy_level == INT8_ACTIVATIONS and g_idx is None
    return PackedProduct(
        A.reshape(-1, K).astype(np.float32, copy=False), weights, None if g_idx is None else
        g_idx[:K], bias, (*A.shape[:-1], N), A.dtype, rounds and has_integer_kernel(bits,
        block_size, weights.zeros.dtype == np.uint8),
    )  # fmt: skip


def check_nbits(given: operators.Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    bias, K, N, bits, block_size = given.bias, given.K, given.N, given.bits, given.block_size
    if given.A.shape[-1:] != (K,):
        raise ModelError(f"A has {list(given.A.shape)[-1:]} columns, and K is {K}")
    if bias is not None and bias.shape != (N,):
        raise ModelError(f"the bias is {list(bias.shape)}, and N is {N}")
    tensors.check_bits(bits)
    tensors.check_block(block_size)
    blocks = -(-K // block_size)
    codes, scales, zero_points = given.B, given.scales, given.zero_points
    expected = (N, blocks, tensors.packed_bytes(block_size, bits))
    if codes.dtype != np.uint8 or codes.size != math.prod(expected):
        raise ModelError(
            f"B is {codes.dtype}{list(codes.shape)}, not uint8{list(expected)}",
            f"That is N, blocks of {block_size} in K, bytes of {bits} bits a weight.",
        )
    if scales.size != N * blocks:
        raise ModelError(f"scales are {list(scales.shape)}, not one for each block, {[N, blocks]}")
    if zero_points is not None:
        each = tensors.packed_bytes(blocks, bits) if zero_points.dtype == np.uint8 else blocks
        if zero_points.size != N * each:
            raise ModelError(
                f"zero_points are {zero_points.dtype}{list(zero_points.shape)}, not {[N, each]}",
                "They are packed in bytes like B, or have the type of A.",
            )
    _check_groups(given.g_idx, K, blocks, block_size)


@operators.operator("MatMulNBits", domain=operators.MICROSOFT, check=check_nbits)
@operators.parameters_of(packed_product)
def matmul_nbits(*inputs: Any, **attributes: Any) -> Array:
    """A (codes - zero points) scales + bias, in float32 for half precision.

    At accuracy level 4, activations are rounded to 8 bits in blocks as onnxruntime's kernels for
    x86 do it with stored weights. `g_idx` chooses scale and zero point of each of K; onnxruntime
    takes it with 4 bits alone, and ignores packed zero points then. Raises ModelError for
    weights of a CUDA device.
    """
    packed = packed_product(*inputs, **attributes)
    limits.allow(packed.shape, np.float32)
    if packed.rounds_activations:
        return packed.output(integer_product(packed.rows, packed.weights))
    return packed.output(product(packed.rows, packed.weights, packed.groups))


def product(rows: Array, weights: tensors.BlockWeights, groups: Array | None = None) -> Array:
    """Returns rows times the weights of `dequantized`, transposed, in float32."""
    output = np.empty((len(rows), len(weights.codes)), np.float32)
    for piece in weights.pieces():
        output[:, piece] = products.matmul(rows, dequantized(weights, piece, groups).T)
    return output


def integer_product(rows: Array, weights: tensors.BlockWeights) -> Array:
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


def rounded_activations(rows: Array, weights: tensors.BlockWeights) -> tuple[Array, Array]:
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


def dequantized(weights: tensors.BlockWeights, rows: slice, groups: Array | None) -> Array:
    """Returns some rows of the weights as float32 [rows, depth]."""
    if groups is None:
        return weights.dequantized(rows)
    codes = tensors.unpacked(weights.codes[rows], weights.bits, weights.depth).astype(np.float32)
    centred = codes - weights.zeros[rows][:, groups].astype(np.float32)
    return centred * weights.scales[rows][:, groups].astype(np.float32)


def has_integer_kernel(bits: int, block: int, has_packed_zeros: bool) -> bool:
    """Whether onnxruntime has a kernel for rounded activations; measured with 1.31.1."""
    return has_packed_zeros and (bits > 2 or 16 < block < 256)


def _check_groups(g_idx: Array | None, depth: int, blocks: int, block_size: int) -> None:
    """Refuses a number of groups other than one for each of K, and groups without a scale."""
    if g_idx is None:
        return
    if g_idx.ndim != 1 or not depth <= g_idx.size <= blocks * block_size:
        raise ModelError(f"g_idx is {list(g_idx.shape)}, not one group for each of K = {depth}")
    groups = operators.value_of(g_idx)
    if groups is None or not depth:
        return
    low, high = groups[:depth].min(), groups[:depth].max()
    if not 0 <= low <= high < blocks:
        raise ModelError(f"g_idx has groups {low} to {high}, and there are {blocks}, from 0")


def check_bnb4(given: operators.Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    K, N, block_size = given.K, given.N, given.block_size
    if given.quant_type not in _TABLES:
        raise ModelError(f"quant_type is {given.quant_type}", "It is 0 for FP4, 1 for NF4.")
    if block_size < 1:
        raise ModelError(f"block_size is {block_size}, and must be at least 1")
    for name, packed, wanted, what in (
        ("B", given.B, -(-N * K // 2), "bytes of two weights"),
        ("absmax", given.absmax, -(-N * K // block_size), f"blocks of {block_size} weights"),
    ):
        if packed.size != wanted:
            raise ModelError(f"{name} is {list(packed.shape)}, and {N} x {K} are {wanted} {what}")


@operators.operator("MatMulBnb4", domain=operators.MICROSOFT, check=check_bnb4)
def matmul_bnb4(
    A: Array, B: Array, absmax: Array,
    *, K: int, N: int, block_size: int, quant_type: int, training_mode: int = 0, transB: int = 1,
) -> Array:  # fmt: skip
    """A times the weights [N, K], transposed with `transB`; sums are float32.

    A weight is the value of its code times `absmax` of its block. Blocks run through the flattened
    weights. A byte has the code of the earlier weight in its upper half.
    """
    limits.allow((N, K), np.float32)
    codes = np.stack([B.reshape(-1) >> 4, B.reshape(-1) & 15], axis=-1).reshape(-1)[: N * K]
    values = _TABLES[quant_type][codes]
    values *= np.repeat(absmax.astype(np.float32).reshape(-1), block_size)[: N * K]
    weights = values.reshape(N, K)
    columns = weights.T if transB else weights
    if A.shape[-1:] != columns.shape[:1]:
        raise ModelError(f"A has {list(A.shape)[-1:]} columns, and the weights {len(columns)} rows")
    return products.matmul(A.astype(np.float32, copy=False), columns).astype(A.dtype, copy=False)


def check_table(given: operators.Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    zero_points = given.zero_points
    table = _table(given.data, given.bits, given.block_size, given.gather_axis, given.quantize_axis)
    blocks = _blocks(given.scales, table)
    if zero_points is None:
        return
    if table.is_float:
        raise ModelError("zero_points of a table of floats")
    shape = blocks
    if table.bits:
        shape = (*blocks[:-1], tensors.packed_bytes(blocks[-1], table.bits))
    if zero_points.shape != shape:
        raise ModelError(f"zero_points are {list(zero_points.shape)}, not {list(shape)}")


@operators.operator("GatherBlockQuantized", domain=operators.MICROSOFT, check=check_table)
def gather_block_quantized(
    data: Array, indices: Array, scales: Array, zero_points: Array | None = None,
    *, bits: int = 4, block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Array:  # fmt: skip
    """(codes - zero points) scales of the slices at `indices`; zeros for an index out of range.

    uint8 `data` has codes of `bits` bits packed along the last axis, low bits first; other types
    have one an element. Only the slices are unpacked.
    """
    table = _table(data, bits, block_size, gather_axis, quantize_axis)
    blocks = _blocks(scales, table)
    at, size = table.gathered, data.shape[table.gathered]
    inside = (indices >= -size) & (indices < size)
    places = np.where(inside, indices % max(size, 1), 0)
    limits.allow((*table.shape[:at], *indices.shape, *table.shape[at + 1 :]), np.float32)
    codes = np.take(data, places, axis=at)
    if table.bits:
        codes = tensors.unpacked(codes, table.bits, table.shape[-1])
    codes = codes.astype(np.float32)
    steps = _spread(np.broadcast_to(scales, blocks), places, table).astype(np.float32)
    zeros = zero_points
    if table.bits and zero_points is None:
        zeros = np.full(blocks, 1 << (table.bits - 1), np.uint8)
    elif table.bits and zero_points is not None:
        zeros = tensors.unpacked(zero_points, table.bits, blocks[-1])
    if zeros is not None:
        codes = codes - _spread(zeros, places, table).astype(np.float32)
    seen = np.reshape(inside, (*indices.shape, *[1] * (data.ndim - at - 1)))
    return np.where(seen, codes * steps, np.float32(0)).astype(scales.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class _Table:
    """The shape of the codes, their bits, the axes gathered from and quantised along.

    `bits` is 0 for a type of which an element is a code.
    """

    shape: tuple[int, ...]
    bits: int
    gathered: int
    quantized: int
    block: int
    is_float: bool


def _table(data: Array, bits: int, block_size: int, gather_axis: int, quantize_axis: int) -> _Table:
    """Returns what the attributes say of the table. Raises ModelError."""
    gathered = tensors.nonnegative_axis(gather_axis, data.ndim)
    quantized = tensors.nonnegative_axis(quantize_axis, data.ndim)
    is_float = data.dtype.name.startswith("float")
    shape = data.shape
    if data.dtype != np.uint8:
        bits = 0
    else:
        tensors.check_bits(bits)
        if gathered or quantized != data.ndim - 1:
            raise ModelError(
                f"a table of uint8 gathered along axis {gathered}, quantised along {quantized}",
                "Packed codes are gathered along axis 0, and quantised along the last.",
            )
        shape = (*shape[:-1], shape[-1] * (8 // bits))
    if block_size or not is_float:
        tensors.check_block(block_size)
    block = block_size or max(shape[quantized], 1)
    return _Table(shape, bits, gathered, quantized, block, is_float)


def _blocks(scales: Array, table: _Table) -> tuple[int, ...]:
    """Returns the blocks along each axis. Raises ModelError for scales of another shape."""
    blocks = list(table.shape)
    blocks[table.quantized] = -(-table.shape[table.quantized] // table.block)
    fits = scales.ndim == len(blocks) and all(
        n == wanted or (n == 1 and table.is_float and axis != table.quantized)
        for axis, (n, wanted) in enumerate(zip(scales.shape, blocks, strict=False))
    )
    if not fits:
        raise ModelError(
            f"scales are {list(scales.shape)}, and blocks of {table.block} along axis "
            f"{table.quantized} are {blocks}"
        )
    return tuple(blocks)


def _spread(parameter: Array, places: Array, table: _Table) -> Array:
    """Returns the scale or zero point of each code of the slices at `places`."""
    at, along = table.gathered, table.quantized
    if at == along:
        return np.take(parameter, places // table.block, axis=at)
    taken = np.take(parameter, places, axis=at)
    axis = along if along < at else along + places.ndim - 1
    whole = np.repeat(taken, table.block, axis=axis)
    return whole[(slice(None),) * axis + (slice(table.shape[along]),)]
