"""Sums in two stages with one range: groups of terms, each from 0, and the sum of the groups.

Lanes are int32; panels and factors are those of `sequential_sums`; groups have an even number of
terms. The sum of a group stays in vector registers; the sum of the groups is in memory.
"""

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tracer.accumulators.kernels.array_types import (
    FACTORS,
    FLAT_OUT,
    INT,
    NUMBERS,
    SOURCES,
    START,
    kernel,
    read_only,
)
from tracer.accumulators.kernels.llvm_sums import (
    FEW_ROWS,
    ROWS,
    counted,
    lane_intrinsic,
    limited,
    plain_sums,
    saturated_sums,
    sums_and_extremes,
)
from tracer.accumulators.kernels.llvm_vectors import VECTORS, Lanes
from tracer.accumulators.kernels.tile_io import begin, end


def _group_code(lanes: Lanes, safe: bool) -> Any:
    """Adds a group to the sums, saturating; sums of a `safe` group need no limits.

    Counts fall by one for each step within the limits.
    """
    b, (at, low, high) = lanes.builder, lanes.arguments[7:10]
    rows = ROWS if safe else FEW_ROWS
    targets, tallies = (lanes.rows(lanes.data(n, at), rows) for n in (6, 10))
    limits = lanes.spread(low), lanes.spread(high)
    terms = [ir.Constant(lanes.vector, None)] * len(targets)
    counts = [lanes.load(tally) for tally in tallies]
    if safe:
        terms = plain_sums(lanes, terms, 2)
    else:
        terms, counts = saturated_sums(lanes, terms, counts, limits)
    for term, count, target, tally in zip(terms, counts, targets, tallies, strict=True):
        wide = b.add(lanes.load(target), term)
        value = limited(lanes, wide, limits)
        lanes.store(value, target)
        lanes.store(counted(lanes, count, wide, value), tally)
    return lanes.context.get_dummy_value()


def _observed_group_code(lanes: Lanes) -> Any:
    """Adds a group to the sums without a range, and widens the extremes of all partial sums."""
    at, count = lanes.arguments[7], FEW_ROWS * VECTORS
    to = [address for n in (6, 8, 9) for address in lanes.rows(lanes.data(n, at), FEW_ROWS)]
    zeros = [ir.Constant(lanes.vector, None)] * count
    after = sums_and_extremes(lanes, zeros + [lanes.load(address) for address in to[count:]])
    for n in range(count):
        term, low, high = after[n::count]
        total = lanes.builder.add(lanes.load(to[n]), term)
        ends = lanes.call("smin", low, total), lanes.call("smax", high, total)
        lanes.store_all((total, *ends), to[n::count])
    return lanes.context.get_dummy_value()


_safe_group = lane_intrinsic(partial(_group_code, safe=True))
_limited_group = lane_intrinsic(partial(_group_code, safe=False))
_observed_group = lane_intrinsic(_observed_group_code)


@kernel(
    *(types.void(FACTORS, FACTORS, INT, read_only(cell), INT, NUMBERS, read_only(types.boolean, 2),
                 START, FACTORS, FLAT_OUT, FLAT_OUT, INT, INT)
      for cell in (types.int16, types.int32))
)  # fmt: skip
def clip(
    left: Any, pairs: Any, depth: int, panel: Any, tile: int, lengths: Any, safe: Any, start: Any,
    limits: Any, values: Any, events: Any, offset: int, width: int,
) -> None:  # fmt: skip
    """As `sequential_sums.clip`, for groups of `lengths` terms.

    `safe` (bands of rows, groups) says which groups stay within the limits in any row.
    """
    rows, columns = start.shape
    size, (low, high) = ROWS * tile, limits
    sums, counts = np.empty(len(safe) * size, np.int32), np.empty(len(safe) * size, np.int32)
    pair_share = sums.itemsize // panel.itemsize
    for column in range(0, columns, tile):
        begin(sums, tile, start, column)
        for band in range(len(safe)):
            t, k, steps = band * size, 0, 0
            counts[t : t + size] = 0
            for group in range(lengths.size):
                f, at, count = band * ROWS * depth + k, column * depth + k * tile, lengths[group]
                if safe[band, group]:
                    _safe_group(pairs, f // pair_share, depth // pair_share, count, panel, at,
                                sums, t, low, high, counts)  # fmt: skip
                else:
                    steps += count
                    for part in range(0, ROWS, FEW_ROWS):
                        _limited_group(left, f + part * depth, depth, count, panel, at,
                                       sums, t + part * tile, low, high, counts)  # fmt: skip
                k += count
            counts[t : t + size] += np.int32(steps + lengths.size)
        width_here = min(tile, columns - column)
        end(sums, tile, rows, width_here, values, offset + column, width)
        end(counts, tile, rows, width_here, events, offset + column, width)


@kernel(
    *(types.void(FACTORS, INT, read_only(cell), INT, NUMBERS, START, FLAT_OUT, FLAT_OUT, FLAT_OUT,
                 INT, INT)
      for cell in (types.int16, types.int32))
)  # fmt: skip
def observe(
    left: Any, depth: int, panel: Any, tile: int, lengths: Any, start: Any,
    final: Any, low: Any, high: Any, offset: int, width: int,
) -> None:  # fmt: skip
    """As `sequential_sums.observe`, for groups of `lengths` terms."""
    rows, columns = start.shape
    sums = np.empty((rows + ROWS - 1) // ROWS * ROWS * tile, np.int32)
    least, greatest = np.empty_like(sums), np.empty_like(sums)
    for column in range(0, columns, tile):
        begin(sums, tile, start, column)
        for i in range(sums.size):
            least[i], greatest[i] = min(sums[i], np.int32(0)), max(sums[i], np.int32(0))
        for row in range(0, rows, FEW_ROWS):
            k = 0
            for group in range(lengths.size):
                _observed_group(left, row * depth + k, depth, lengths[group], panel,
                                column * depth + k * tile, sums, row * tile,
                                least, greatest, 0)  # fmt: skip
                k += lengths[group]
        count = min(tile, columns - column)
        end(sums, tile, rows, count, final, offset + column, width)
        end(least, tile, rows, count, low, offset + column, width)
        end(greatest, tile, rows, count, high, offset + column, width)


@kernel(
    *(types.void(read_only(kind, 2), NUMBERS, NUMBERS, NUMBERS, types.Array(types.boolean, 2, "C"))
      for kind in SOURCES)
)  # fmt: skip
def find_safe(source: Any, order: Any, lengths: Any, ranges: Any, out: Any) -> None:
    """Whether every partial sum of a group stays in the range in all ROWS rows of a band.

    `ranges` are the lowest and the highest number of the columns, 0 included, then of the
    accumulator. `order` and `lengths` are a program's; -1 in `order` is a term of 0.
    """
    below, above, low, high = ranges
    out[:] = True
    for row in range(len(source)):
        factors, k = source[row], 0
        for group in range(lengths.size):
            up, down = np.int64(0), np.int64(0)
            for i in range(k, k + lengths[group]):
                if order[i] >= 0:
                    value: Any = np.int64(factors[np.uintp(order[i])])
                    up, down = up + max(value, 0), down + min(value, 0)
            k += lengths[group]
            least, most = up * below + down * above, up * above + down * below
            out[row // ROWS, group] &= low <= least and most <= high
