"""GatherBlockQuantized, domain com.microsoft: rows of a table of quantised blocks, as floats."""

from dataclasses import dataclass

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input
from tracer.interpreter.numeric import block_weights
from tracer.interpreter.numeric.axes import nonnegative_axis
from tracer.interpreter.numeric.block_weights import packed_bytes, unpacked
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array


def check_inputs(
    data: Input,
    scales: Input,
    zero_points: Input | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    table = _table(data, bits, block_size, gather_axis, quantize_axis)
    blocks = _blocks(scales, table)
    if zero_points is None:
        return
    if table.is_float:
        raise ModelError("zero_points of a table of floats")
    shape = blocks
    if table.bits:
        shape = (*blocks[:-1], packed_bytes(blocks[-1], table.bits))
    if zero_points.shape != shape:
        raise ModelError(f"zero_points are {list(zero_points.shape)}, not {list(shape)}")


@operator("GatherBlockQuantized", domain=DOMAIN, check=check_inputs)
def gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Array:
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
    codes = _codes(np.take(data, places, axis=at), table)
    steps = _spread(np.broadcast_to(scales, blocks), places, table).astype(np.float32)
    zeros = _zeros(zero_points, blocks, table)
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


def _table(data: Input, bits: int, block_size: int, gather_axis: int, quantize_axis: int) -> _Table:
    """Returns what the attributes say of the table. Raises ModelError."""
    gathered = nonnegative_axis(gather_axis, data.ndim)
    quantized = nonnegative_axis(quantize_axis, data.ndim)
    is_float = data.dtype.name.startswith("float")
    shape = data.shape
    if data.dtype != np.uint8:
        bits = 0
    else:
        block_weights.check_bits(bits)
        if gathered or quantized != data.ndim - 1:
            raise ModelError(
                f"a table of uint8 gathered along axis {gathered}, quantised along {quantized}",
                "Packed codes are gathered along axis 0, and quantised along the last.",
            )
        shape = (*shape[:-1], shape[-1] * (8 // bits))
    if block_size or not is_float:
        block_weights.check_block(block_size)
    block = block_size or max(shape[quantized], 1)
    return _Table(shape, bits, gathered, quantized, block, is_float)


def _blocks(scales: Input, table: _Table) -> tuple[int, ...]:
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


def _codes(taken: Array, table: _Table) -> Array:
    """Returns the codes of the slices as float32."""
    codes = unpacked(taken, table.bits, table.shape[-1]) if table.bits else taken
    return codes.astype(np.float32)


def _zeros(zero_points: Array | None, blocks: tuple[int, ...], table: _Table) -> Array | None:
    """Returns the zero point of each block; None for 0."""
    if zero_points is None:
        return np.full(blocks, 1 << (table.bits - 1), np.uint8) if table.bits else None
    return unpacked(zero_points, table.bits, blocks[-1]) if table.bits else zero_points


def _spread(parameter: Array, places: Array, table: _Table) -> Array:
    """Returns the scale or zero point of each code of the slices at `places`."""
    at, along = table.gathered, table.quantized
    if at == along:
        return np.take(parameter, places // table.block, axis=at)
    taken = np.take(parameter, places, axis=at)
    axis = along if along < at else along + places.ndim - 1
    whole = np.repeat(taken, table.block, axis=axis)
    return whole[(slice(None),) * axis + (slice(table.shape[along]),)]
