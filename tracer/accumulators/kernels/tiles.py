"""The sums of a tile: set to their start, and written out as int64."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from tracer.accumulators.kernels.llvm_vectors import COLUMNS_16, COLUMNS_32
from tracer.accumulators.kernels.tile_io import settle

START = types.Array(types.int64, 2, "A", readonly=True)
OUT = types.Array(types.int64, 1, "C")
_INT = types.intp


def _begin_of(lane: Any) -> Any:
    return types.void(types.Array(lane, 1, "C"), _INT, START, _INT)


@njit([_begin_of(types.int16), _begin_of(types.int32)], nogil=True, cache=True)
def begin(sums: Any, tile: int, start: Any, column: int) -> None:
    """The start of the columns from `column` on, in the lanes of a tile; 0 beyond them."""
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


def _end_of(lane: Any) -> Any:
    return types.void(types.Array(lane, 1, "C"), _INT, _INT, _INT, OUT, _INT, _INT)


@njit([_end_of(types.int16), _end_of(types.int32)], nogil=True, cache=True)
def end(sums: Any, tile: int, rows: int, count: int, out: Any, place: int, width: int) -> None:
    """Write `count` lanes of every row of a tile to `out[place + row * width:]`."""
    vector = COLUMNS_16 if sums.itemsize == 2 else COLUMNS_32
    for row in range(rows):
        here, there = row * tile, place + row * width
        if count == tile:
            for lane in range(0, tile, vector):
                settle(sums, here + lane, out, there + lane)
        else:
            for lane in range(count):
                out[there + lane] = sums[here + lane]
