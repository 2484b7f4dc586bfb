"""Sums in two stages: groups of terms, each from 0, and the sum of those, in the same range.

Lanes are int32, panels and factors those of `dense`; groups have an even number of terms. The sums
of a group stay in vector registers, those of all groups are in memory meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tracer.accumulators.kernels.llvm_sums import (
    FEWER,
    ROWS,
    clipped,
    counted,
    held,
    summed,
    widened,
)
from tracer.accumulators.kernels.llvm_vectors import VECTORS, Lanes
from tracer.accumulators.kernels.tile_io import SOURCES
from tracer.accumulators.kernels.tiles import OUT, START, begin, end

_INT = types.intp
_FLAT = types.Array(types.int32, 1, "C")
_FACTORS = types.Array(types.int32, 1, "C", readonly=True)
_LENGTHS = types.Array(types.int64, 1, "C", readonly=True)
_SAFE = types.Array(types.boolean, 2, "C", readonly=True)
_LIMITS = types.Array(types.int32, 1, "C", readonly=True)


def _group(lanes: Lanes, safe: bool) -> Any:
    """A group clipped, or plain where it is `safe`, added to the sums; counts fall as in lanes."""
    b, (at, low, high) = lanes.builder, lanes.arguments[7:10]
    rows = ROWS if safe else FEWER
    targets, tallies = (lanes.rows(lanes.data(n, at), rows) for n in (6, 10))
    limits = lanes.spread(low), lanes.spread(high)
    terms = [ir.Constant(lanes.vector, None)] * len(targets)
    counts = [lanes.load(tally) for tally in tallies]
    if safe:
        terms = summed(lanes, terms, 2)
    else:
        terms, counts = clipped(lanes, terms, counts, limits)
    for term, count, target, tally in zip(terms, counts, targets, tallies, strict=True):
        wide = b.add(lanes.load(target), term)
        kept = held(lanes, wide, limits)
        lanes.store(kept, target)
        lanes.store(counted(lanes, count, wide, kept), tally)
    return lanes.context.get_dummy_value()


def _group_of(safe: bool) -> Any:
    @intrinsic
    def group(
        typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
        sums: Any, at: Any, low: Any, high: Any, counts: Any,
    ) -> Any:  # fmt: skip
        i, lane = types.intp, sums.dtype
        kind = types.void(left, i, i, i, panel, i, sums, i, lane, lane, counts)
        return kind, lambda *call: _group(Lanes(*call), safe)

    return group


@intrinsic
def _reach_of(
    typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
    sums: Any, at: Any, least: Any, greatest: Any,
) -> Any:  # fmt: skip
    """A plain group added to the sums, and the extremes on the way."""

    def code(*call: Any) -> Any:
        lanes = Lanes(*call)
        at, count = lanes.arguments[7], FEWER * VECTORS
        to = [address for n in (6, 8, 9) for address in lanes.rows(lanes.data(n, at), FEWER)]
        nothing = [ir.Constant(lanes.vector, None)] * count
        after = widened(lanes, nothing + [lanes.load(address) for address in to[count:]])
        for n in range(count):
            term, low, high = after[n::count]
            total = lanes.builder.add(lanes.load(to[n]), term)
            ends = lanes.call("smin", low, total), lanes.call("smax", high, total)
            for value, address in zip((total, *ends), to[n::count], strict=True):
                lanes.store(value, address)
        return lanes.context.get_dummy_value()

    i = types.intp
    return types.void(left, i, i, i, panel, i, sums, i, least, greatest), code


_safe: Any = _group_of(safe=True)
_careful: Any = _group_of(safe=False)
_reach: Any = _reach_of


def _clip_of(cell: Any) -> Any:
    panel = types.Array(cell, 1, "C", readonly=True)
    return types.void(
        _FACTORS, _FACTORS, _INT, panel, _INT, _LENGTHS, _SAFE, START, _LIMITS, OUT, OUT, _INT, _INT
    )


@njit([_clip_of(types.int16), _clip_of(types.int32)], nogil=True, cache=True)
def clip(
    left: Any, pairs: Any, depth: int, panel: Any, tile: int, lengths: Any, safe: Any, start: Any,
    limits: Any, values: Any, events: Any, place: int, width: int,
) -> None:  # fmt: skip
    """As `dense.clip`, for groups of so many terms; `safe` (bands of rows, groups) stay within."""
    rows, columns = start.shape
    size, (low, high) = ROWS * tile, limits
    sums, counts = np.empty(len(safe) * size, np.int32), np.empty(len(safe) * size, np.int32)
    share = sums.itemsize // panel.itemsize
    for column in range(0, columns, tile):
        begin(sums, tile, start, column)
        for band in range(len(safe)):
            t, k, steps = band * size, 0, 0
            counts[t : t + size] = 0
            for group in range(lengths.size):
                f, at, deep = band * ROWS * depth + k, column * depth + k * tile, lengths[group]
                if safe[band, group]:
                    _safe(pairs, f // share, depth // share, deep, panel, at, sums, t, low, high,
                          counts)  # fmt: skip
                else:
                    steps += deep
                    for part in range(0, ROWS, FEWER):
                        _careful(left, f + part * depth, depth, deep, panel, at,
                                 sums, t + part * tile, low, high, counts)  # fmt: skip
                k += deep
            counts[t : t + size] += np.int32(steps + lengths.size)
        count = min(tile, columns - column)
        end(sums, tile, rows, count, values, place + column, width)
        end(counts, tile, rows, count, events, place + column, width)


def _observe_of(cell: Any) -> Any:
    panel = types.Array(cell, 1, "C", readonly=True)
    return types.void(_FACTORS, _INT, panel, _INT, _LENGTHS, START, OUT, OUT, OUT, _INT, _INT)


@njit([_observe_of(types.int16), _observe_of(types.int32)], nogil=True, cache=True)
def observe(
    left: Any, depth: int, panel: Any, tile: int, lengths: Any, start: Any,
    final: Any, low: Any, high: Any, place: int, width: int,
) -> None:  # fmt: skip
    """As `dense.observe`, for groups of so many terms."""
    rows, columns = start.shape
    sums = np.empty((rows + ROWS - 1) // ROWS * ROWS * tile, np.int32)
    least, greatest = np.empty_like(sums), np.empty_like(sums)
    for column in range(0, columns, tile):
        begin(sums, tile, start, column)
        for i in range(sums.size):
            least[i], greatest[i] = min(sums[i], np.int32(0)), max(sums[i], np.int32(0))
        for row in range(0, rows, FEWER):
            k = 0
            for group in range(lengths.size):
                _reach(left, row * depth + k, depth, lengths[group], panel,
                       column * depth + k * tile, sums, row * tile, least, greatest)  # fmt: skip
                k += lengths[group]
        count = min(tile, columns - column)
        end(sums, tile, rows, count, final, place + column, width)
        end(least, tile, rows, count, low, place + column, width)
        end(greatest, tile, rows, count, high, place + column, width)


def _within_of(source: Any) -> Any:
    there = types.Array(source, 2, "C", readonly=True)
    return types.void(there, _LENGTHS, _LENGTHS, _LENGTHS,
                      types.Array(types.boolean, 2, "C"))  # fmt: skip


@njit([_within_of(kind) for kind in SOURCES], nogil=True, cache=True)
def within(source: Any, order: Any, lengths: Any, ranges: Any, out: Any) -> None:
    """Whether no sum on the way through a group of any of ROWS rows can leave a range.

    `ranges` are the lowest and the highest number of the columns, 0 among them, and of the range;
    `order` and `lengths` are a program's: -1 is a term of 0.
    """
    below, above, low, high = ranges
    out[:] = True
    for row in range(len(source)):
        here, k = source[row], 0
        for group in range(lengths.size):
            up, down = np.int64(0), np.int64(0)
            for i in range(k, k + lengths[group]):
                if order[i] >= 0:
                    value: Any = np.int64(here[np.uintp(order[i])])
                    up, down = up + max(value, 0), down + min(value, 0)
            k += lengths[group]
            least, most = up * below + down * above, up * above + down * below
            out[row // ROWS, group] &= low <= least and most <= high
