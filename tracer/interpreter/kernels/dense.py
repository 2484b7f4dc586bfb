"""Dense blocks of sums, term after term, in a narrow accumulator that saturates, or in a wide one.

Columns come in panels of a tile each, `panel[(tile * depth + k) * COLUMNS + lane]`; rows and lanes
beyond a block, and terms up to a multiple of GROUP, are zeros, which change no sum. A tile passes
over its panel CHUNK by CHUNK: first hopefully, looking only now and then whether the sums are far
enough from the ends of the range; where they are not, again with care, step by step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from tracer.interpreter.kernels.lanes import (
    COLUMNS_16,
    COLUMNS_32,
    FEWER,
    GROUP,
    ROWS,
    careful,
    careful_full,
    extremes,
    hopeful,
    move,
)

__all__ = ["COLUMNS_16", "COLUMNS_32", "GROUP", "ROWS"]

CHUNK = 128
"""Terms after which a tile is looked at; its part of the panel stays in the first-level cache."""
_ROWS_PACKED = 64

SOURCES = (types.int8, types.uint8, types.int16, types.int32, types.int64)
"""Types of operands."""

_INT = types.intp
_FACTORS = types.Array(types.int32, 1, "C", readonly=True)
_SLACK = types.Array(types.int64, 1, "C", readonly=True)
_START = types.Array(types.int64, 2, "A", readonly=True)
_OUT = types.Array(types.int64, 1, "C")


def _clip(lane: Any) -> Any:
    panel = types.Array(lane, 1, "C", readonly=True)
    return types.void(
        _FACTORS,
        _INT,
        panel,
        _INT,
        _SLACK,
        _START,
        lane,
        lane,
        types.boolean,
        _OUT,
        _OUT,
        _INT,
        _INT,
    )


def _wide(lane: Any) -> Any:
    panel = types.Array(lane, 1, "C", readonly=True)
    return types.void(_FACTORS, _INT, panel, _INT, _START, _OUT, _OUT, _OUT, _INT, _INT)


def _place(lane: Any) -> Any:
    out = types.Array(lane, 1, "C")
    return types.void(out, _INT, _START, _INT)


@njit([_place(types.int16), _place(types.int32)], nogil=True, cache=True)
def _begin(sums: Any, tile: int, start: Any, column: int) -> None:
    """The start of the columns from `column` on, in the lanes of a tile; 0 beyond them."""
    rows, columns = start.shape
    count = min(tile, columns - column)
    alike = start.strides[1] == 0
    sums[:] = sums.dtype.type(0)
    for row in range(rows):
        here = sums[row * tile : row * tile + count]
        if alike:
            here[:] = sums.dtype.type(start[row, 0])
        else:
            for lane in range(count):
                here[lane] = sums.dtype.type(start[row, column + lane])


def _finish_of(lane: Any) -> Any:
    return types.void(types.Array(lane, 1, "C"), _INT, _INT, _INT, _OUT, _INT, _INT)


@njit([_finish_of(types.int16), _finish_of(types.int32)], nogil=True, cache=True)
def _end(sums: Any, tile: int, rows: int, count: int, out: Any, place: int, width: int) -> None:
    """Write `count` lanes of every row of a tile to `out[place + row * width:]`."""
    for row in range(rows):
        here, there = np.uintp(row * tile), np.uintp(place + row * width)
        for lane in range(np.uintp(count)):
            out[there + lane] = sums[here + lane]


def _tally_of(lane: Any) -> Any:
    return types.boolean(types.Array(lane, 1, "C"), _INT, _INT, _INT, types.int32[::1])


@njit([_tally_of(types.int16), _tally_of(types.int32)], nogil=True, cache=True)
def _tally(counts: Any, place: int, size: int, depth: int, events: Any) -> bool:
    """Add what `careful` counted to the events; whether there were any."""
    source, target = counts[place : place + size], events[place : place + size]
    some = np.int32(0)
    for i in range(size):
        here = np.int32(np.int32(depth) + np.int32(source[i]))
        target[i] = np.int32(target[i] + here)
        some = np.int32(some | here)
    return some != 0


@njit([_clip(types.int16), _clip(types.int32)], nogil=True, cache=True)
def clip(
    left: Any, depth: int, panel: Any, tile: int, slack: Any, start: Any, low: Any, high: Any,
    full: bool, values: Any, events: Any, place: int, width: int,
) -> None:  # fmt: skip
    """Sums (rows, columns) that saturate at `low` and `high`, and how many steps did.

    `left` (rows up to ROWS, depth up to GROUP) is flat; `start` is within the range. `slack` is,
    for each ROWS rows, twice their largest product, or -1 where hope is vain. `full`: lanes are
    int16, and the range is all they hold. Row i of the results is `values[place + i * width:]`.
    """
    rows, columns = start.shape
    bands = slack.size
    sums = np.empty(bands * ROWS * tile, panel.dtype)
    counts, many = np.empty_like(sums), np.empty(sums.size, np.int32)
    calm = np.empty(bands, np.bool_)
    base = 0
    for column in range(0, columns, tile):
        count = min(tile, columns - column)
        _begin(sums, tile, start, column)
        many[:] = 0
        calm[:] = True
        for k in range(0, depth, CHUNK):
            deep = min(CHUNK, depth - k)
            at = base + k * tile
            for band in range(bands):
                f, t = band * ROWS * depth + k, band * ROWS * tile
                margin = slack[band]
                if calm[band] and margin >= 0 and hopeful(
                    left, f, depth, deep, panel, at, sums, t,
                    panel.dtype.type(low + margin), panel.dtype.type(high - margin),
                ):  # fmt: skip
                    continue
                for part in range(0, ROWS, FEWER):
                    g, u = f + part * depth, t + part * tile
                    if full:
                        careful_full(left, g, depth, deep, panel, at, sums, u, low, high, counts)
                    else:
                        careful(left, g, depth, deep, panel, at, sums, u, low, high, counts)
                calm[band] = not _tally(counts, t, ROWS * tile, deep, many)
        _end(sums, tile, rows, count, values, place + column, width)
        _end(many, tile, rows, count, events, place + column, width)
        base += depth * tile


@njit([_wide(types.int16), _wide(types.int32)], nogil=True, cache=True)
def observe(
    left: Any, depth: int, panel: Any, tile: int, start: Any, final: Any, low: Any, high: Any,
    place: int, width: int,
) -> None:  # fmt: skip
    """Sums (rows, columns) without a range; `low` and `high` are the extremes on the way, from 0.

    `left` is as for `clip`, and all sums fit the lanes.
    """
    rows, columns = start.shape
    size = (rows + ROWS - 1) // ROWS * ROWS * tile
    sums = np.empty(size, panel.dtype)
    least, greatest = np.empty_like(sums), np.empty_like(sums)
    base = 0
    for column in range(0, columns, tile):
        count = min(tile, columns - column)
        _begin(sums, tile, start, column)
        for i in range(size):
            least[i] = min(sums[i], panel.dtype.type(0))
            greatest[i] = max(sums[i], panel.dtype.type(0))
        for k in range(0, depth, CHUNK):
            deep = min(CHUNK, depth - k)
            for row in range(0, rows, FEWER):
                extremes(left, row * depth + k, depth, deep, panel, base + k * tile,
                         sums, row * tile, least, greatest)  # fmt: skip
        _end(sums, tile, rows, count, final, place + column, width)
        _end(least, tile, rows, count, low, place + column, width)
        _end(greatest, tile, rows, count, high, place + column, width)
        base += depth * tile


def _sizes_of(source: Any) -> Any:
    there = types.Array(source, 2, "C", readonly=True)
    out = types.Array(types.int64, 1, "C")
    return types.void(there, out, out)


@njit([_sizes_of(kind) for kind in SOURCES], nogil=True, cache=True)
def sizes(source: Any, sums: Any, largest: Any) -> None:
    """Of every row the sum of magnitudes, and the largest; modulo 2^64."""
    for row in range(len(source)):
        there = source[row]
        total, most = np.int64(0), np.int64(0)
        for k in range(there.size):
            size = abs(np.int64(there[k]))
            total += size
            most = max(most, size)
        sums[row], largest[row] = total, most


def _spread_of(source: Any) -> Any:
    there = types.Array(source, 2, "C", readonly=True)
    order = types.Array(types.int64, 1, "C", readonly=True)
    return types.void(there, order, types.boolean, types.Array(types.int32, 2, "C"))


@njit([_spread_of(kind) for kind in SOURCES], nogil=True, cache=True)
def spread(source: Any, order: Any, twice: bool, out: Any) -> None:
    """Factors for `clip` and `observe`, in the order of the terms; `twice` for int16 lanes."""
    out[len(source) :] = 0
    out[:, order.size :] = 0
    for row in range(len(source)):
        here, there = source[row], out[row]
        for k in range(order.size):
            there[k] = np.int32(here[order[k]])
        if twice:
            for k in range(order.size):
                there[k] = np.int32((there[k] << 16) | (there[k] & 0xFFFF))


def _pack_of(source: Any, lane: Any) -> Any:
    there = types.Array(source, 2, "C", readonly=True)
    order = types.Array(types.int64, 1, "C", readonly=True)
    return types.void(there, order, _INT, _INT, _INT, _INT, types.Array(lane, 1, "C"))


_LANES = (types.int16, types.int32, types.int64)


@njit([_pack_of(s, t) for s in SOURCES for t in _LANES], nogil=True, cache=True)
def pack(source: Any, order: Any, first: int, stop: int, depth: int, tile: int, panel: Any) -> None:
    """Columns `first` to `stop` of `source` in tiles; row k of a panel is row `order[k]`.

    Some rows are taken at a time, so that a line of the source is read once for several tiles.
    """
    kind, size = panel.dtype.type, panel.itemsize
    wide, flat = source.shape[1], source.reshape(-1)
    whole = (size == 2 and tile == COLUMNS_16) or (size == 4 and tile == COLUMNS_32)
    for low in range(0, depth, _ROWS_PACKED):
        high = min(low + _ROWS_PACKED, depth)
        for column in range(first, stop, tile):
            count = min(tile, stop - column)
            for k in range(low, high):
                there = (column - first) * depth + k * tile
                filled = count if k < order.size else 0
                here = order[k] * wide + column if filled else 0
                if whole and filled == tile:
                    move(flat, here, panel, there)
                    continue
                for lane in range(filled):
                    panel[there + lane] = kind(flat[here + lane])
                for lane in range(filled, tile):
                    panel[there + lane] = kind(0)
