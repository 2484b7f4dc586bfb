"""Packs columns into panels, sets the start of a tile's sums, and writes its sums out as int64.

A panel holds one tile of columns after the other: `panel[(tile * depth + k) * COLUMNS + lane]`.
Where lanes take terms in pairs, rows k and k + 1 of a tile are interleaved; see `llvm_sums`.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tracer.accumulators.kernels.array_types import (
    FLAT_OUT,
    INT,
    NUMBERS,
    SOURCES,
    START,
    flat,
    kernel,
    read_only,
)
from tracer.accumulators.kernels.llvm_vectors import COLUMNS_16, COLUMNS_32, REGISTER, VECTORS


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    make: Any = make_array
    return builder.gep(make(kind)(context, builder, array).data, [index])


def _converted(context: Any, builder: Any, kinds: Any, address: Any, count: int) -> Any:
    """`count` integers of the first kind at `address`, as the second kind."""
    narrow, wide = (ir.VectorType(ir.IntType(kind.bitwidth), count) for kind in kinds)
    value = builder.load(builder.bitcast(address, narrow.as_pointer()))
    value.align = 1
    if kinds[0].bitwidth < kinds[1].bitwidth:
        return (builder.sext if kinds[0].signed else builder.zext)(value, wide)
    return builder.trunc(value, wide) if kinds[0].bitwidth > kinds[1].bitwidth else value


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.bitcast(address, value.type.as_pointer())).align = 2


def _copy_code(lanes_of: int) -> Any:
    """Code that copies one tile row of numbers; argument `lanes_of` has the type of a lane."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = signature.args[0], signature.args[2]
        kinds = [array.dtype for array in arrays]
        count = REGISTER // signature.args[lanes_of].dtype.bitwidth
        source, target = (
            _address(context, builder, array, *arguments[n : n + 2])
            for n, array in zip((0, 2), arrays, strict=True)
        )
        for vector in range(VECTORS):  # one by one, which is what becomes vector instructions
            index = [ir.IntType(64)(vector * count)]
            value = _converted(context, builder, kinds, builder.gep(source, index), count)
            _store(builder, value, builder.gep(target, index))
        return context.get_dummy_value()

    return code


@intrinsic
def _load_columns(typingctx: Any, source: Any, here: Any, panel: Any, there: Any) -> Any:
    return types.void(source, INT, panel, INT), _copy_code(lanes_of=2)


@intrinsic
def _store_columns(typingctx: Any, sums: Any, here: Any, out: Any, there: Any) -> Any:
    return types.void(sums, INT, out, INT), _copy_code(lanes_of=0)


@intrinsic
def _interleave_columns(
    typingctx: Any, source: Any, even: Any, odd: Any, panel: Any, there: Any
) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = [signature.args[n].dtype for n in (0, 3)]
        addresses = (_address(context, builder, source, arguments[0], at) for at in arguments[1:3])
        rows = [_converted(context, builder, kinds, each, COLUMNS_32) for each in addresses]
        turns = [lane + row * COLUMNS_32 for lane in range(COLUMNS_32) for row in (0, 1)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 2 * COLUMNS_32), turns)
        to = _address(context, builder, panel, *arguments[3:])
        _store(builder, builder.shuffle_vector(*rows, mask), to)
        return context.get_dummy_value()

    return types.void(source, INT, INT, panel, INT), code


# The arrays of these three are flat and contiguous. Indices are not checked.

load_columns: Any = _load_columns
"""(source, here, panel, there): copies COLUMNS numbers of the source to lanes of the panel."""

_interleave: Any = _interleave_columns
"""(source, even, odd, panel, there): copies COLUMNS_32 numbers from either index, in turn."""

store_columns: Any = _store_columns
"""(sums, here, out, there): copies COLUMNS lanes to numbers of the type of `out`."""


_LANES = (types.int16, types.int32, types.int64)


@kernel(
    *(types.void(read_only(source, 2), NUMBERS, INT, INT, INT, INT, flat(lane))
      for source in SOURCES for lane in _LANES)
)  # fmt: skip
def pack(source: Any, order: Any, first: int, stop: int, depth: int, tile: int, panel: Any) -> None:
    """Packs columns `first` to `stop` of `source` in tiles; row k of a tile is row `order[k]`.

    Where `order[k]` is -1 the row may hold anything: its factors are 0.
    """
    kind, size = panel.dtype.type, panel.itemsize
    width, numbers = source.shape[1], source.reshape(-1)
    vectors = (size == 2 and tile == COLUMNS_16) or (size == 4 and tile == COLUMNS_32)
    for k in range(depth):
        filled = stop - first if k < order.size else 0
        here = max(order[k], 0) * width + first if filled else 0
        there = k * tile
        full_tiles = filled // tile if vectors else 0
        for _ in range(full_tiles):
            load_columns(numbers, here, panel, there)
            here += tile
            there += depth * tile
        for column in range(first + full_tiles * tile, stop, tile):
            count = min(tile, stop - column) if filled else 0
            for lane in range(count):
                panel[there + lane] = kind(numbers[here + lane])
            for lane in range(count, tile):
                panel[there + lane] = kind(0)
            here += tile
            there += depth * tile


@kernel(
    *(types.void(read_only(source, 2), NUMBERS, INT, INT, INT, INT, flat(types.int16))
      for source in SOURCES)
)  # fmt: skip
def pack_pairs(
    source: Any, order: Any, first: int, stop: int, depth: int, tile: int, panel: Any
) -> None:
    """As `pack`, with rows k and k + 1 interleaved; `tile` is COLUMNS_32 and `depth` is even."""
    width, numbers = source.shape[1], source.reshape(-1)
    for k in range(0, depth, 2):
        rows = min(max(order.size - k, 0), 2)
        even = max(order[k], 0) * width + first if rows > 0 else 0
        odd = max(order[k + 1], 0) * width + first if rows > 1 else 0
        there = k * tile
        full_tiles = (stop - first) // tile if rows == 2 else 0
        for _ in range(full_tiles):
            _interleave(numbers, even, odd, panel, there)
            even += tile
            odd += tile
            there += depth * tile
        for column in range(first + full_tiles * tile, stop, tile):
            panel[there : there + 2 * tile] = 0
            for lane in range(min(tile, stop - column)):
                if rows > 0:
                    panel[there + 2 * lane] = np.int16(numbers[even + lane])
                if rows > 1:
                    panel[there + 2 * lane + 1] = np.int16(numbers[odd + lane])
            even += tile
            odd += tile
            there += depth * tile


@kernel(*(types.void(flat(lane), INT, START, INT) for lane in _LANES[:2]))
def begin(sums: Any, tile: int, start: Any, column: int) -> None:
    """Sets the sums of a tile to `start` (rows, columns) from `column` on; 0 beyond its columns."""
    rows, columns = start.shape
    count = min(tile, columns - column)
    sums[:] = sums.dtype.type(0)
    for row in range(rows):
        first = sums.dtype.type(start[row, column])
        if start.strides[1] == 0:
            if first != 0:
                sums[row * tile : (row + 1) * tile] = first
        else:
            for lane in range(count):
                sums[row * tile + lane] = sums.dtype.type(start[row, column + lane])


@kernel(*(types.void(flat(lane), INT, INT, INT, FLAT_OUT, INT, INT) for lane in _LANES[:2]))
def end(sums: Any, tile: int, rows: int, count: int, out: Any, index: int, width: int) -> None:
    """Writes `count` lanes of every row of a tile to `out[index + row * width:]`."""
    vector = COLUMNS_16 if sums.itemsize == 2 else COLUMNS_32
    for row in range(rows):
        here, there = row * tile, index + row * width
        if count == tile:
            for lane in range(0, tile, vector):
                store_columns(sums, here + lane, out, there + lane)
        else:
            for lane in range(count):
                out[there + lane] = sums[here + lane]
