"""Sums with one register, term after term: saturating, or without a range and observed.

Columns come in panels that `tile_io` packs. Rows and lanes beyond a block, and terms up to a
multiple of DEPTH_STEP, are zeros, which change no sum. A tile passes over its panel CHUNK by
CHUNK. It first adds without limits, and checks now and then that sums are far enough from the
limits. Where a check fails it repeats the chunk and limits every step.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.kernels.array_types import (
    FACTORS,
    FLAT_OUT,
    INT,
    NUMBERS,
    SOURCES,
    START,
    TABLE,
    flat,
    kernel,
    read_only,
)
from tracer.accumulators.kernels.llvm_sums import (
    DEPTH_STEP,
    FEW_ROWS,
    ROWS,
    extremes,
    saturating,
    saturating_full,
    speculative,
    unchecked,
)
from tracer.accumulators.kernels.llvm_vectors import COLUMNS_16, COLUMNS_32
from tracer.accumulators.kernels.tile_io import begin, end

__all__ = ["COLUMNS_16", "COLUMNS_32", "DEPTH_STEP", "ROWS"]

CHUNK = 128
"""Terms that a tile takes at a time; its part of the panel stays in the first-level cache."""

_MODES = ((types.int16, types.int16), (types.int32, types.int16), (types.int32, types.int32))
"""Types of a lane and of a panel; int32 lanes with an int16 panel take terms in pairs."""


@kernel(
    *(types.boolean(flat(lane), INT, INT, INT, flat(types.int32))
      for lane in (types.int16, types.int32))
)  # fmt: skip
def _add_events(counts: Any, offset: int, size: int, depth: int, events: Any) -> bool:
    """Adds the events of `depth` steps that `saturating` counted; True if there were any."""
    source, target = counts[offset : offset + size], events[offset : offset + size]
    some = np.int32(0)
    for i in range(size):
        here = np.int32(np.int32(depth) + np.int32(source[i]))
        target[i] = np.int32(target[i] + here)
        some = np.int32(some | here)
    return some != 0


@kernel(
    *(types.void(FACTORS, INT, INT, INT, read_only(cell), INT, flat(lane), INT, INT,
                 read_only(lane), types.boolean, flat(lane))
      for lane, cell in _MODES)
)  # fmt: skip
def _saturate(
    left: Any, first: int, depth: int, terms: int, panel: Any, at: int, sums: Any, to: int,
    tile: int, limits: Any, full: bool, counts: Any,
) -> None:  # fmt: skip
    """Adds `terms` terms to the sums of ROWS rows, limited at every step; see `saturating`."""
    low, high = limits
    for part in range(0, ROWS, FEW_ROWS):
        f, t = first + part * depth, to + part * tile
        if full:
            saturating_full(left, f, depth, terms, panel, at, sums, t, low, high, counts)
        else:
            saturating(left, f, depth, terms, panel, at, sums, t, low, high, counts)


@kernel(
    *(types.void(FACTORS, FACTORS, INT, read_only(cell), INT, TABLE, START, read_only(lane),
                 types.boolean, FLAT_OUT, FLAT_OUT, INT, INT)
      for lane, cell in _MODES)
)  # fmt: skip
def clip(
    left: Any, pairs: Any, depth: int, panel: Any, tile: int, checks: Any, start: Any, limits: Any,
    full: bool, values: Any, events: Any, offset: int, width: int,
) -> None:  # fmt: skip
    """Computes sums (rows, columns) that saturate at two `limits`, and counts saturating steps.

    `left` (rows up to ROWS, depth up to DEPTH_STEP) is flat; `pairs` are the same factors as
    `speculative` reads them. `start` is within the limits, which have the type of a lane.
    `checks` (bands of ROWS rows, 2), int64, has the number of terms between checks, a multiple of
    DEPTH_STEP, and the distance from the limits that a check asks for. The number is 0 where no
    sum can leave the limits, -1 where every step must be limited. With `full`, lanes are int16
    and the limits are the lane's own. Row i of the results begins at `offset + i * width`.
    """
    rows, columns = start.shape
    bands, (low, high) = len(checks), limits
    sums = np.empty(bands * ROWS * tile, limits.dtype)
    counts, event_counts = np.empty_like(sums), np.zeros(sums.size, np.int32)
    calm = np.empty(bands, np.bool_)  # no events in the last chunk that was limited
    pair_share = sums.itemsize // panel.itemsize
    for column in range(0, columns, tile):
        count = min(tile, columns - column)
        begin(sums, tile, start, column)
        event_counts[:] = 0
        calm[:] = True
        for k in range(0, depth, CHUNK):
            terms, at = min(CHUNK, depth - k), column * depth + k * tile
            for band in range(bands):
                f, t = band * ROWS * depth + k, band * ROWS * tile
                interval, margin = checks[band]
                if interval == 0:
                    unchecked(pairs, f // pair_share, depth // pair_share, terms, panel, at,
                              sums, t, low, high, 0)  # fmt: skip
                    continue
                if calm[band] and interval > 0 and speculative(
                    pairs, f // pair_share, depth // pair_share, terms, panel, at, sums, t,
                    limits.dtype.type(low + margin), limits.dtype.type(high - margin), interval,
                ):  # fmt: skip
                    continue
                _saturate(left, f, depth, terms, panel, at, sums, t, tile, limits, full, counts)
                calm[band] = not _add_events(counts, t, ROWS * tile, terms, event_counts)
        end(sums, tile, rows, count, values, offset + column, width)
        end(event_counts, tile, rows, count, events, offset + column, width)


@kernel(
    *(types.void(FACTORS, INT, read_only(cell), INT, START, read_only(lane),
                 FLAT_OUT, FLAT_OUT, FLAT_OUT, INT, INT)
      for lane, cell in _MODES)
)  # fmt: skip
def observe(
    left: Any, depth: int, panel: Any, tile: int, start: Any, zero: Any,
    final: Any, low: Any, high: Any, offset: int, width: int,
) -> None:  # fmt: skip
    """Computes sums (rows, columns) without a range, and their extremes on the way from 0.

    `left` is as for `clip`. `zero` is one lane, whose type holds all partial sums.
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
            terms = min(CHUNK, depth - k)
            for row in range(0, rows, FEW_ROWS):
                extremes(left, row * depth + k, depth, terms, panel, column * depth + k * tile,
                         sums, row * tile, least, greatest, 0)  # fmt: skip
        end(sums, tile, rows, count, final, offset + column, width)
        end(least, tile, rows, count, low, offset + column, width)
        end(greatest, tile, rows, count, high, offset + column, width)


@kernel(*(types.void(read_only(kind, 2), FLAT_OUT, FLAT_OUT, FLAT_OUT) for kind in SOURCES))
def row_sizes(source: Any, up: Any, down: Any, largest: Any) -> None:
    """For each row: the magnitudes of positive and of negative numbers added up, and the largest.

    All are modulo 2^64.
    """
    for row in range(len(source)):
        numbers = source[row]
        total, size, most = np.int64(0), np.int64(0), np.int64(0)
        for k in range(numbers.size):
            value = np.int64(numbers[k])
            total += value
            size += abs(value)
            most = max(most, abs(value))
        up[row], down[row], largest[row] = (size + total) >> 1, (size - total) >> 1, most


NARROW, PAIRED, WIDE = range(3)
"""Lanes that factors are for: int16, int32 that takes pairs of terms, and other int32."""


_FACTORS_OUT = types.Array(types.int32, 2, "C")


@kernel(
    *(types.void(read_only(kind, 2), NUMBERS, INT, _FACTORS_OUT, _FACTORS_OUT) for kind in SOURCES)
)
def lay_out_factors(source: Any, order: Any, lanes: int, out: Any, pairs: Any) -> None:
    """Writes factors as `llvm_sums` reads them, in the order of the terms; `pairs` if PAIRED.

    Where `order` is -1 the factor is 0.
    """
    out[len(source) :] = 0
    pairs[len(source) :] = 0
    in_order = bool(np.all(order == np.arange(order.size)))
    for row in range(len(source)):
        numbers, factors = source[row], out[row]
        factors[order.size :] = 0
        if in_order:  # a loop that is vectorised
            for k in range(order.size):
                factors[k] = np.int32(numbers[k])
        else:
            for k in range(order.size):
                factors[k] = np.int32(numbers[order[k]]) if order[k] >= 0 else np.int32(0)
        if lanes == NARROW:
            for k in range(factors.size):
                factors[k] = np.int32((factors[k] << 16) | (factors[k] & 0xFFFF))
        elif lanes == PAIRED:
            both = pairs[row]
            for k in range(both.size):
                even = np.int32(factors[2 * k] & 0xFFFF)
                odd = np.int32(factors[2 * k + 1] << 16)
                factors[2 * k], factors[2 * k + 1], both[k] = even, odd, even | odd
