"""Columns of a matrix of integers packed in panels for `lanes`, and lanes written out as integers.

A panel has a tile of columns after the other, `panel[(tile * depth + k) * COLUMNS + lane]`; pairs
of terms are interleaved, see `lanes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tracer.accumulators.kernels.llvm_vectors import COLUMNS_16, COLUMNS_32, REGISTER, VECTORS

SOURCES = (types.int8, types.uint8, types.int16, types.int32, types.int64)
"""Types of operands."""

_INT = types.intp


def _address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    make: Any = make_array
    return builder.gep(make(kind)(context, builder, array).data, [place])


def _converted(context: Any, builder: Any, kinds: Any, place: Any, count: int) -> Any:
    """`count` integers of the first type at `place`, as the second."""
    narrow, wide = (ir.VectorType(ir.IntType(kind.bitwidth), count) for kind in kinds)
    value = builder.load(builder.bitcast(place, narrow.as_pointer()))
    value.align = 1
    if kinds[0].bitwidth < kinds[1].bitwidth:
        return (builder.sext if kinds[0].signed else builder.zext)(value, wide)
    return builder.trunc(value, wide) if kinds[0].bitwidth > kinds[1].bitwidth else value


def _store(builder: Any, value: Any, place: Any) -> None:
    builder.store(value, builder.bitcast(place, value.type.as_pointer())).align = 2


def _moved(columns_of: int) -> Any:
    """A vector from one array to another: as many as lanes of the type of argument `columns_of`."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = signature.args[0], signature.args[2]
        kinds = [array.dtype for array in arrays]
        count = REGISTER // signature.args[columns_of].dtype.bitwidth
        here, there = (
            _address(context, builder, array, *arguments[n : n + 2])
            for n, array in zip((0, 2), arrays, strict=True)
        )
        for vector in range(VECTORS):  # one by one, which is what becomes vector instructions
            place = [ir.IntType(64)(vector * count)]
            value = _converted(context, builder, kinds, builder.gep(here, place), count)
            _store(builder, value, builder.gep(there, place))
        return context.get_dummy_value()

    return code


@intrinsic
def _move_of(typingctx: Any, source: Any, here: Any, panel: Any, there: Any) -> Any:
    return types.void(source, _INT, panel, _INT), _moved(columns_of=2)


@intrinsic
def _settle_of(typingctx: Any, sums: Any, here: Any, out: Any, there: Any) -> Any:
    return types.void(sums, _INT, out, _INT), _moved(columns_of=0)


@intrinsic
def _weave_of(typingctx: Any, source: Any, here: Any, other: Any, panel: Any, there: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = [signature.args[n].dtype for n in (0, 3)]
        rows = [
            _converted(context, builder, kinds, place, COLUMNS_32)
            for place in (
                _address(context, builder, source, arguments[0], at) for at in arguments[1:3]
            )
        ]
        turns = [lane + row * COLUMNS_32 for lane in range(COLUMNS_32) for row in (0, 1)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 2 * COLUMNS_32), turns)
        to = _address(context, builder, panel, *arguments[3:])
        _store(builder, builder.shuffle_vector(*rows, mask), to)
        return context.get_dummy_value()

    return types.void(source, _INT, _INT, panel, _INT), code


# In all of these arrays are flat and contiguous, and nothing is checked.

move: Any = _move_of
"""(source, here, panel, there): COLUMNS numbers of the source, as lanes."""

_weave: Any = _weave_of
"""(source, here, other, panel, there): COLUMNS_32 numbers from either place, in turn, as int16."""

settle: Any = _settle_of
"""(sums, here, out, there): COLUMNS lanes as numbers of the type of `out`."""


def _pack_of(source: Any, lane: Any) -> Any:
    there = types.Array(source, 2, "C", readonly=True)
    order = types.Array(types.int64, 1, "C", readonly=True)
    return types.void(there, order, _INT, _INT, _INT, _INT, types.Array(lane, 1, "C"))


_LANES = (types.int16, types.int32, types.int64)


@njit([_pack_of(s, t) for s in SOURCES for t in _LANES], nogil=True, cache=True)
def pack(source: Any, order: Any, first: int, stop: int, depth: int, tile: int, panel: Any) -> None:
    """Columns `first` to `stop` of `source` in tiles; row k of a panel is row `order[k]`.

    Where that is -1 it is any row: its factors are 0.
    """
    kind, size = panel.dtype.type, panel.itemsize
    wide, flat = source.shape[1], source.reshape(-1)
    vectors = (size == 2 and tile == COLUMNS_16) or (size == 4 and tile == COLUMNS_32)
    for k in range(depth):
        filled = stop - first if k < order.size else 0
        here = max(order[k], 0) * wide + first if filled else 0
        there = k * tile
        whole = filled // tile if vectors else 0
        for _ in range(whole):
            move(flat, here, panel, there)
            here += tile
            there += depth * tile
        for column in range(first + whole * tile, stop, tile):
            count = min(tile, stop - column) if filled else 0
            for lane in range(count):
                panel[there + lane] = kind(flat[here + lane])
            for lane in range(count, tile):
                panel[there + lane] = kind(0)
            here += tile
            there += depth * tile


@njit([_pack_of(source, types.int16) for source in SOURCES], nogil=True, cache=True)
def pack_pairs(
    source: Any, order: Any, first: int, stop: int, depth: int, tile: int, panel: Any
) -> None:
    """The same, the rows k and k + 1 of a panel in turn; tiles of COLUMNS_32, an even depth."""
    wide, flat = source.shape[1], source.reshape(-1)
    for k in range(0, depth, 2):
        rows = min(max(order.size - k, 0), 2)
        here = max(order[k], 0) * wide + first if rows > 0 else 0
        other = max(order[k + 1], 0) * wide + first if rows > 1 else 0
        there = k * tile
        whole = (stop - first) // tile if rows == 2 else 0
        for _ in range(whole):
            _weave(flat, here, other, panel, there)
            here += tile
            other += tile
            there += depth * tile
        for column in range(first + whole * tile, stop, tile):
            panel[there : there + 2 * tile] = 0
            for lane in range(min(tile, stop - column)):
                if rows > 0:
                    panel[there + 2 * lane] = np.int16(flat[here + lane])
                if rows > 1:
                    panel[there + 2 * lane + 1] = np.int16(flat[other + lane])
            here += tile
            other += tile
            there += depth * tile
