"""Dense blocks of sums, term after term, in a narrow accumulator that saturates, or in a wide one.

Columns come in panels, as `columns` packs them; rows and lanes beyond a block, and terms up to a
multiple of GROUP, are zeros, which change no sum. A tile passes over its panel CHUNK by CHUNK:
first hopefully, looking only now and then whether the sums are far enough from the ends of the
range; where they are not, again with care, step by step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from tracer.accumulators.kernels.llvm_sums import (
    FEWER,
    GROUP,
    ROWS,
    careful,
    careful_full,
    extremes,
    hopeful,
    plain,
)
from tracer.accumulators.kernels.llvm_vectors import COLUMNS_16, COLUMNS_32
from tracer.accumulators.kernels.tile_io import SOURCES
from tracer.accumulators.kernels.tiles import OUT, START, begin, end

__all__ = ["COLUMNS_16", "COLUMNS_32", "GROUP", "ROWS"]

CHUNK = 128
"""Terms after which a tile is looked at; its part of the panel stays in the first-level cache."""

_INT = types.intp
_FACTORS = types.Array(types.int32, 1, "C", readonly=True)
_HOPES = types.Array(types.int64, 2, "C", readonly=True)
_MODES = ((types.int16, types.int16), (types.int32, types.int16), (types.int32, types.int32))
"""Lanes, and what their panels consist of: the second take terms in pairs."""


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


def _with_care_of(lane: Any, cell: Any) -> Any:
    panel, limits = (types.Array(kind, 1, "C", readonly=True) for kind in (cell, lane))
    lanes = types.Array(lane, 1, "C")
    return types.void(
        _FACTORS, _INT, _INT, _INT, panel, _INT, lanes, _INT, _INT, limits, types.boolean, lanes
    )


@njit([_with_care_of(*mode) for mode in _MODES], nogil=True, cache=True)
def _with_care(
    left: Any, first: int, depth: int, deep: int, panel: Any, at: int, sums: Any, to: int,
    tile: int, limits: Any, full: bool, counts: Any,
) -> None:  # fmt: skip
    """Add `deep` terms to the sums of ROWS rows, held in the limits; as `lanes.careful`."""
    low, high = limits
    for part in range(0, ROWS, FEWER):
        f, t = first + part * depth, to + part * tile
        if full:
            careful_full(left, f, depth, deep, panel, at, sums, t, low, high, counts)
        else:
            careful(left, f, depth, deep, panel, at, sums, t, low, high, counts)


def _clip_of(lane: Any, cell: Any) -> Any:
    panel, limits = (types.Array(kind, 1, "C", readonly=True) for kind in (cell, lane))
    return types.void(
        _FACTORS, _FACTORS, _INT, panel, _INT, _HOPES, START, limits, types.boolean, OUT, OUT,
        _INT, _INT,
    )  # fmt: skip


@njit([_clip_of(*mode) for mode in _MODES], nogil=True, cache=True)
def clip(
    left: Any, pairs: Any, depth: int, panel: Any, tile: int, hopes: Any, start: Any, limits: Any,
    full: bool, values: Any, events: Any, place: int, width: int,
) -> None:  # fmt: skip
    """Sums (rows, columns) that saturate at the two `limits`, and how many steps did.

    `left` (rows up to ROWS, depth up to GROUP) is flat, and `pairs` are what hope reads; `start`
    is within the limits, which have the type of lanes. `hopes` has for each ROWS rows the terms
    between looks, a multiple of GROUP, and how far from the limits sums must then be for those
    between to be within: 0 looks where no sum can leave the limits, -1 where hope is vain. `full`:
    lanes are int16, and the limits all they hold. Row i of the results is at `place + i * width`.
    """
    rows, columns = start.shape
    bands, (low, high) = len(hopes), limits
    sums = np.empty(bands * ROWS * tile, limits.dtype)
    counts, many = np.empty_like(sums), np.zeros(sums.size, np.int32)
    calm = np.empty(bands, np.bool_)
    share = sums.itemsize // panel.itemsize
    for column in range(0, columns, tile):
        count = min(tile, columns - column)
        begin(sums, tile, start, column)
        many[:] = 0
        calm[:] = True
        for k in range(0, depth, CHUNK):
            deep, at = min(CHUNK, depth - k), column * depth + k * tile
            for band in range(bands):
                f, t = band * ROWS * depth + k, band * ROWS * tile
                looks, margin = hopes[band]
                if looks == 0:
                    plain(pairs, f // share, depth // share, deep, panel, at, sums, t)
                    continue
                if calm[band] and looks > 0 and hopeful(
                    pairs, f // share, depth // share, deep, panel, at, sums, t,
                    limits.dtype.type(low + margin), limits.dtype.type(high - margin), looks,
                ):  # fmt: skip
                    continue
                _with_care(left, f, depth, deep, panel, at, sums, t, tile, limits, full, counts)
                calm[band] = not _tally(counts, t, ROWS * tile, deep, many)
        end(sums, tile, rows, count, values, place + column, width)
        end(many, tile, rows, count, events, place + column, width)


def _observe_of(lane: Any, cell: Any) -> Any:
    panel, zero = (types.Array(kind, 1, "C", readonly=True) for kind in (cell, lane))
    return types.void(_FACTORS, _INT, panel, _INT, START, zero, OUT, OUT, OUT, _INT, _INT)


@njit([_observe_of(*mode) for mode in _MODES], nogil=True, cache=True)
def observe(
    left: Any, depth: int, panel: Any, tile: int, start: Any, zero: Any,
    final: Any, low: Any, high: Any, place: int, width: int,
) -> None:  # fmt: skip
    """Sums (rows, columns) without a range; `low` and `high` are the extremes on the way, from 0.

    `left` is as for `clip`; `zero` is one lane, and all sums fit such.
    """
    rows, columns = start.shape
    size = (rows + ROWS - 1) // ROWS * ROWS * tile
    sums = np.empty(size, zero.dtype)
    least, greatest = np.empty_like(sums), np.empty_like(sums)
    for column in range(0, columns, tile):
        count = min(tile, columns - column)
        begin(sums, tile, start, column)
        for i in range(size):
            least[i] = min(sums[i], zero[0])
            greatest[i] = max(sums[i], zero[0])
        for k in range(0, depth, CHUNK):
            deep = min(CHUNK, depth - k)
            for row in range(0, rows, FEWER):
                extremes(left, row * depth + k, depth, deep, panel, column * depth + k * tile,
                         sums, row * tile, least, greatest)  # fmt: skip
        end(sums, tile, rows, count, final, place + column, width)
        end(least, tile, rows, count, low, place + column, width)
        end(greatest, tile, rows, count, high, place + column, width)


def _sizes_of(source: Any) -> Any:
    there = types.Array(source, 2, "C", readonly=True)
    return types.void(there, OUT, OUT, OUT)


@njit([_sizes_of(kind) for kind in SOURCES], nogil=True, cache=True)
def sizes(source: Any, up: Any, down: Any, largest: Any) -> None:
    """Of every row the sum of positive and that of negative magnitudes, and the largest.

    Modulo 2^64.
    """
    for row in range(len(source)):
        there = source[row]
        total, size, most = np.int64(0), np.int64(0), np.int64(0)
        for k in range(there.size):
            value = np.int64(there[k])
            total += value
            size += abs(value)
            most = max(most, abs(value))
        up[row], down[row], largest[row] = (size + total) >> 1, (size - total) >> 1, most


NARROW, PAIRED, WIDE = range(3)
"""What factors are for: int16 lanes, int32 lanes that take pairs of terms, and others."""


def _spread_of(source: Any) -> Any:
    there = types.Array(source, 2, "C", readonly=True)
    order = types.Array(types.int64, 1, "C", readonly=True)
    out = types.Array(types.int32, 2, "C")
    return types.void(there, order, _INT, out, out)


@njit([_spread_of(kind) for kind in SOURCES], nogil=True, cache=True)
def spread(source: Any, order: Any, kind: int, out: Any, pairs: Any) -> None:
    """Factors as `lanes` reads them, in the order of the terms; `pairs` for PAIRED alone.

    Where `order` is -1 the factor is 0.
    """
    out[len(source) :] = 0
    pairs[len(source) :] = 0
    straight = bool(np.all(order == np.arange(order.size)))
    for row in range(len(source)):
        here, there = source[row], out[row]
        there[order.size :] = 0
        if straight:  # a loop that is vectorised
            for k in range(order.size):
                there[k] = np.int32(here[k])
        else:
            for k in range(order.size):
                there[k] = np.int32(here[order[k]]) if order[k] >= 0 else np.int32(0)
        if kind == NARROW:
            for k in range(there.size):
                there[k] = np.int32((there[k] << 16) | (there[k] & 0xFFFF))
        elif kind == PAIRED:
            both = pairs[row]
            for k in range(both.size):
                even = np.int32(there[2 * k] & 0xFFFF)
                odd = np.int32(there[2 * k + 1] << 16)
                there[2 * k], there[2 * k + 1], both[k] = even, odd, even | odd
