"""Sums over columns that are gathered from images block by block, and what came of them counted.

Between the images and the counts nothing leaves the second-level cache: so many columns are
written out at a time, packed, summed by `dense`, and looked at.

numba keeps compiled code by the time stamp of the file of the function that is compiled: touch
this one after a change in `dense`, `tally`, or what those are made of.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from tracer.accumulators.kernels.sequential_sums import COLUMNS_16, COLUMNS_32, clip, observe
from tracer.accumulators.kernels.sum_statistics import spread
from tracer.accumulators.kernels.tile_io import move, pack, pack_pairs

OUTSIDE, LASTING, EVENTS, CHANGED = range(4)
"""What `counted` counts: sums that leave the range on the way, at their end, steps that do, and
sums that are other than the exact ones."""

_INT = types.intp
_SOURCE = types.Array(types.int16, 1, "C", readonly=True)
_FACTORS = types.Array(types.int32, 1, "C", readonly=True)
_NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
_START = types.Array(types.int64, 2, "A", readonly=True)
_HOPES = types.Array(types.int64, 2, "C", readonly=True)
_FLAT = types.Array(types.int16, 1, "C")
_OUT = types.Array(types.int64, 1, "C")
_TABLE = types.Array(types.int64, 2, "C")


@njit(types.void(_SOURCE, _NUMBERS, _NUMBERS, _NUMBERS, _INT, _INT, _FLAT), nogil=True, cache=True)
def _unfold(
    source: Any, offsets: Any, sizes: Any, steps: Any, first: int, count: int, matrix: Any
) -> None:
    """`count` columns from `first` on as a flat matrix (K, count), with COLUMNS_16 to spare."""
    lines, places, step = sizes[1], sizes[2], np.uintp(steps[2])
    start_image, rest = divmod(first, lines * places)
    start_line, start_place = divmod(rest, places)
    for k in range(offsets.size):
        image, line, place, at, end = start_image, start_line, start_place, k * count, count
        while end > 0:
            here = offsets[k] + image * steps[0] + line * steps[1] + place * steps[2]
            size = min(places - place, end)
            if step == 1 and here + size + COLUMNS_16 <= source.size:
                for i in range(0, size, COLUMNS_16):  # what is too much is overwritten by the next
                    move(source, here + i, matrix, at + i)
            else:
                for i in range(np.uintp(size)):
                    matrix[np.uintp(at) + i] = source[np.uintp(here) + i * step]
            at, end = at + size, end - size
            place, line = 0, line + 1
            if line == lines:
                image, line = image + 1, 0


@njit(
    types.void(
        _SOURCE, _NUMBERS, _NUMBERS, _NUMBERS, _INT, _INT, _INT, types.boolean, _FLAT, _FLAT
    ),
    nogil=True, cache=True,
)  # fmt: skip
def _pack(
    source: Any, offsets: Any, sizes: Any, steps: Any, first: int, count: int, depth: int,
    paired: bool, matrix: Any, panel: Any,
) -> None:  # fmt: skip
    """The same columns as a panel for `dense`: terms in pairs for int32 lanes, else for int16."""
    _unfold(source, offsets, sizes, steps, first, count, matrix)
    written = matrix[: offsets.size * count].reshape(offsets.size, count)
    order = np.arange(offsets.size)
    if paired:
        pack_pairs(written, order, 0, count, depth, COLUMNS_32, panel)
    else:
        pack(written, order, 0, count, depth, COLUMNS_16, panel)


@njit(types.int64(_OUT, _NUMBERS, _INT), nogil=True, cache=True)
def _more(events: Any, early: Any, count: int) -> Any:
    """Add to `count` events of every row those before its first term; how many there are in all."""
    total = np.int64(0)
    for row in range(early.size):
        for i in range(row * count, (row + 1) * count):
            events[i] += early[row]
            total += events[i]
    return total


@njit(types.void(_OUT, _OUT, _OUT, _INT, _NUMBERS, _OUT), nogil=True, cache=True)
def _count(values: Any, events: Any, finals: Any, size: int, range_: Any, counts: Any) -> None:
    outside, lasting, total, changed = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    low, high = range_[0], range_[1]
    for i in range(size):
        outside += events[i] != 0
        lasting += (finals[i] < low) | (finals[i] > high)
        total += events[i]
        changed += values[i] != finals[i]
    counts[OUTSIDE] += outside
    counts[LASTING] += lasting
    counts[EVENTS] += total
    counts[CHANGED] += changed


@njit(
    types.void(
        _OUT, _OUT, _INT, _INT, _INT, _INT, _NUMBERS, types.int64, types.boolean, _OUT
    ),
    nogil=True, cache=True,
)  # fmt: skip
def _write(
    values: Any, exact: Any, rows: int, count: int, first: int, pixels: int, apart: Any,
    kept: int, mark_unchanged: bool, out: Any,
) -> None:  # fmt: skip
    """Sums (rows, count) to where the outputs of the columns from `first` on lie."""
    image, pixel = divmod(first, pixels)
    at, step = 0, np.uintp(apart[2])
    while at < count:
        size = np.uintp(min(pixels - pixel, count - at))
        for row in range(rows):
            here = np.uintp(row * count + at)
            there = np.uintp(image * apart[0] + row * apart[1] + pixel * apart[2])
            for i in range(size):
                value = values[here + i]
                same = mark_unchanged and value == exact[here + i]
                out[there + i * step] = kept if same else value
        at += pixels - pixel
        image, pixel = image + 1, 0


def _counted_of(lane: Any) -> Any:
    limits = types.Array(lane, 1, "C", readonly=True)
    return types.void(
        _SOURCE, _NUMBERS, _NUMBERS, _NUMBERS, _INT, _INT, _INT,
        _FACTORS, _FACTORS, _INT, _INT, _HOPES, _START, limits, types.boolean, _NUMBERS,
        _FACTORS, _FACTORS, _START, _NUMBERS, types.int64, types.boolean, _OUT, _NUMBERS, _OUT,
    )  # fmt: skip


@njit([_counted_of(types.int16), _counted_of(types.int32)], nogil=True, cache=True)
def counted(
    source: Any, offsets: Any, sizes: Any, steps: Any, first: int, stop: int, wide: int,
    left: Any, pairs: Any, depth: int, tile: int, hopes: Any, start: Any, limits: Any, full: bool,
    early: Any, exact_left: Any, exact_pairs: Any, exact_start: Any, range_: Any, kept: int,
    mark_unchanged: bool, out: Any, apart: Any, counts: Any,
) -> None:  # fmt: skip
    """Sums of the columns `first` to `stop`, `wide` at a time, into `out`; see `dense.clip`.

    A column begins `steps` apart for its image, line and place, of which there are `sizes`, and
    has a number at each of `offsets`. `start` and `exact_start` (rows, at least `wide`) are within
    the limits, and the bias itself; `early` counts for each row the step between them. The
    `exact_` factors are for int32 lanes in pairs. Output row i of a column lies `apart` for its
    image, row and place; with `mark_unchanged`, `kept` stands where a sum is exact.
    """
    rows, pixels = start.shape[0], sizes[1] * sizes[2]
    matrix = np.empty(offsets.size * wide + COLUMNS_16, np.int16)
    panel, paired = np.empty((wide + COLUMNS_16) * depth, np.int16), tile == COLUMNS_32
    values, events, finals, many = (
        np.empty(rows * wide, np.int64), np.empty(rows * wide, np.int64),
        np.empty(rows * wide, np.int64), np.empty(rows * wide, np.int64),
    )  # fmt: skip
    calm, whole = np.zeros_like(hopes), np.array([-(1 << 31), (1 << 31) - 1], np.int32)
    for begin in range(first, stop, wide):
        count = min(wide, stop - begin)
        _pack(source, offsets, sizes, steps, begin, count, depth, paired, matrix, panel)
        clip(left, pairs, depth, panel, tile, hopes, start[:, :count], limits, full,
             values, events, 0, count)  # fmt: skip
        total = _more(events, early, count)
        if total:
            if not paired:
                _pack(source, offsets, sizes, steps, begin, count, depth, True, matrix, panel)
            clip(exact_left, exact_pairs, depth, panel, COLUMNS_32, calm, exact_start[:, :count],
                 whole, False, finals, many, 0, count)  # fmt: skip
            _count(values, events, finals, rows * count, range_, counts)
        _write(values, finals if total else values, rows, count, begin, pixels, apart, kept,
               mark_unchanged, out)  # fmt: skip


@njit(
    types.void(
        _SOURCE, _NUMBERS, _NUMBERS, _NUMBERS, _INT, _INT, _INT, _FACTORS, _INT, _START,
        types.boolean, _INT, _TABLE, _TABLE, _OUT, _OUT, _OUT, _TABLE,
    ),
    nogil=True, cache=True,
)  # fmt: skip
def tallied(
    source: Any, offsets: Any, sizes: Any, steps: Any, first: int, stop: int, wide: int,
    left: Any, depth: int, start: Any, symmetric: bool, fraction: int,
    prefix_widths: Any, final_widths: Any, lows: Any, highs: Any, finals: Any, extremes: Any,
) -> None:  # fmt: skip
    """Spread the same sums, without a range, over tables that are added to; see `tally.spread`.

    `extremes` are widened.
    """
    rows, zero = start.shape[0], np.zeros(1, np.int32)
    matrix = np.empty(offsets.size * wide + COLUMNS_16, np.int16)
    panel = np.empty((wide + COLUMNS_32) * depth, np.int16)
    final, low, high = (
        np.empty(rows * wide, np.int64), np.empty(rows * wide, np.int64),
        np.empty(rows * wide, np.int64),
    )  # fmt: skip
    here = np.empty((4, rows), np.int64)
    for begin in range(first, stop, wide):
        count = min(wide, stop - begin)
        _pack(source, offsets, sizes, steps, begin, count, depth, True, matrix, panel)
        observe(left, depth, panel, COLUMNS_32, start[:, :count], zero, final, low, high,
                0, count)  # fmt: skip
        spread(
            low[: rows * count].reshape(rows, count), high[: rows * count].reshape(rows, count),
            final[: rows * count].reshape(rows, count), symmetric, fraction,
            prefix_widths, final_widths, lows, highs, finals, here,
        )  # fmt: skip
        for row in range(rows):
            extremes[0, row] = min(extremes[0, row], here[0, row])
            extremes[1, row] = max(extremes[1, row], here[1, row])
            extremes[2, row] = min(extremes[2, row], here[2, row])
            extremes[3, row] = max(extremes[3, row], here[3, row])
