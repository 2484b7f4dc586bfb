"""Sums a whole node in one pass: gathers columns from images, sums them, and counts the results.

Intermediate data stays in the second-level cache: a block of columns is copied, packed, summed by
`sequential_sums`, and counted before the next block.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.kernels.array_types import (
    FACTORS,
    FLAT_OUT,
    INT,
    NUMBERS,
    START,
    TABLE,
    TABLE_OUT,
    flat,
    kernel,
    read_only,
)
from tracer.accumulators.kernels.llvm_vectors import COLUMNS_16, COLUMNS_32
from tracer.accumulators.kernels.sequential_sums import clip, observe
from tracer.accumulators.kernels.sum_statistics import spread
from tracer.accumulators.kernels.tile_io import load_columns, pack, pack_pairs

OUTSIDE, PERSISTENT, EVENTS, CHANGED = range(4)
"""Counts of `clip_and_count`: sums that leave the range on the way, sums whose exact final value
is outside, steps that leave the range, sums other than the exact ones."""

_SOURCE = read_only(types.int16)
_FLAT = flat(types.int16)


@kernel(types.void(_SOURCE, NUMBERS, NUMBERS, NUMBERS, INT, INT, _FLAT))
def _unfold(
    source: Any, offsets: Any, sizes: Any, steps: Any, first: int, count: int, matrix: Any
) -> None:
    """Writes `count` columns from `first` on as a flat matrix (K, count).

    The matrix has COLUMNS_16 more elements than these need.
    """
    lines, places, step = sizes[1], sizes[2], np.uintp(steps[2])
    start_image, rest = divmod(first, lines * places)
    start_line, start_place = divmod(rest, places)
    for k in range(offsets.size):
        image, line, place, at, end = start_image, start_line, start_place, k * count, count
        while end > 0:
            here = offsets[k] + image * steps[0] + line * steps[1] + place * steps[2]
            size = min(places - place, end)
            if step == 1 and here + size + COLUMNS_16 <= source.size:
                for i in range(0, size, COLUMNS_16):  # the next copy overwrites the excess
                    load_columns(source, here + i, matrix, at + i)
            else:
                for i in range(np.uintp(size)):
                    matrix[np.uintp(at) + i] = source[np.uintp(here) + i * step]
            at, end = at + size, end - size
            place, line = 0, line + 1
            if line == lines:
                image, line = image + 1, 0


@kernel(types.void(_SOURCE, NUMBERS, NUMBERS, NUMBERS, INT, INT, INT, types.boolean, _FLAT, _FLAT))
def _pack(
    source: Any, offsets: Any, sizes: Any, steps: Any, first: int, count: int, depth: int,
    paired: bool, matrix: Any, panel: Any,
) -> None:  # fmt: skip
    """Packs the same columns in a panel: pairs of terms for int32 lanes, or int16 lanes."""
    _unfold(source, offsets, sizes, steps, first, count, matrix)
    columns = matrix[: offsets.size * count].reshape(offsets.size, count)
    order = np.arange(offsets.size)
    if paired:
        pack_pairs(columns, order, 0, count, depth, COLUMNS_32, panel)
    else:
        pack(columns, order, 0, count, depth, COLUMNS_16, panel)


@kernel(types.int64(FLAT_OUT, NUMBERS, INT))
def _add_start_events(events: Any, start_events: Any, count: int) -> Any:
    """Adds the event at the start of each row to its `count` sums; returns all events."""
    total = np.int64(0)
    for row in range(start_events.size):
        for i in range(row * count, (row + 1) * count):
            events[i] += start_events[row]
            total += events[i]
    return total


@kernel(types.void(FLAT_OUT, FLAT_OUT, FLAT_OUT, INT, NUMBERS, FLAT_OUT))
def _count(values: Any, events: Any, exact: Any, size: int, range_: Any, counts: Any) -> None:
    outside, persistent, total, changed = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    low, high = range_[0], range_[1]
    for i in range(size):
        outside += events[i] != 0
        persistent += (exact[i] < low) | (exact[i] > high)
        total += events[i]
        changed += values[i] != exact[i]
    counts[OUTSIDE] += outside
    counts[PERSISTENT] += persistent
    counts[EVENTS] += total
    counts[CHANGED] += changed


@kernel(
    types.void(
        FLAT_OUT, FLAT_OUT, INT, INT, INT, INT, NUMBERS, types.int64, types.boolean, FLAT_OUT
    )
)
def _write(
    values: Any, exact: Any, rows: int, count: int, first: int, pixels: int, strides: Any,
    unchanged: int, mark_unchanged: bool, out: Any,
) -> None:  # fmt: skip
    """Writes sums (rows, count) to the outputs of the columns from `first` on."""
    image, pixel = divmod(first, pixels)
    at, step = 0, np.uintp(strides[2])
    while at < count:
        size = np.uintp(min(pixels - pixel, count - at))
        for row in range(rows):
            here = np.uintp(row * count + at)
            there = np.uintp(image * strides[0] + row * strides[1] + pixel * strides[2])
            for i in range(size):
                value = values[here + i]
                same = mark_unchanged and value == exact[here + i]
                out[there + i * step] = unchanged if same else value
        at += pixels - pixel
        image, pixel = image + 1, 0


@kernel(
    *(types.void(
        _SOURCE, NUMBERS, NUMBERS, NUMBERS, INT, INT, INT,
        FACTORS, FACTORS, INT, INT, TABLE, START, read_only(lane), types.boolean, NUMBERS,
        FACTORS, FACTORS, START, NUMBERS, types.int64, types.boolean, FLAT_OUT, NUMBERS, FLAT_OUT,
    ) for lane in (types.int16, types.int32))
)  # fmt: skip
def clip_and_count(
    source: Any, offsets: Any, sizes: Any, steps: Any, first: int, stop: int, block: int,
    left: Any, pairs: Any, depth: int, tile: int, checks: Any, start: Any, limits: Any, full: bool,
    start_events: Any, exact_left: Any, exact_pairs: Any, exact_start: Any, range_: Any,
    unchanged: int, mark_unchanged: bool, out: Any, strides: Any, counts: Any,
) -> None:  # fmt: skip
    """Writes saturating sums of columns `first` to `stop` to `out`, and adds to four counts.

    It takes `block` columns at a time; see `sequential_sums.clip`. A column begins at `steps` for
    its image, line and place, of which there are `sizes`, and reads a number at each of `offsets`.
    `start` and `exact_start` (rows, at least `block`) are the bias within the limits and the bias;
    `start_events` is 1 for rows where they differ. The `exact_` factors are for int32 lanes in
    pairs. Output row i of a column lies at `strides` for its image, row and place. With
    `mark_unchanged`, `unchanged` stands for sums that are exact.
    """
    rows, pixels = start.shape[0], sizes[1] * sizes[2]
    matrix = np.empty(offsets.size * block + COLUMNS_16, np.int16)
    panel, paired = np.empty((block + COLUMNS_16) * depth, np.int16), tile == COLUMNS_32
    values, events, exact, spare = (
        np.empty(rows * block, np.int64), np.empty(rows * block, np.int64),
        np.empty(rows * block, np.int64), np.empty(rows * block, np.int64),
    )  # fmt: skip
    no_checks, int32 = np.zeros_like(checks), np.array([-(1 << 31), (1 << 31) - 1], np.int32)
    for begin in range(first, stop, block):
        count = min(block, stop - begin)
        _pack(source, offsets, sizes, steps, begin, count, depth, paired, matrix, panel)
        clip(left, pairs, depth, panel, tile, checks, start[:, :count], limits, full,
             values, events, 0, count)  # fmt: skip
        total = _add_start_events(events, start_events, count)
        if total:
            if not paired:
                _pack(source, offsets, sizes, steps, begin, count, depth, True, matrix, panel)
            clip(exact_left, exact_pairs, depth, panel, COLUMNS_32, no_checks,
                 exact_start[:, :count], int32, False, exact, spare, 0, count)  # fmt: skip
            _count(values, events, exact, rows * count, range_, counts)
        _write(values, exact if total else values, rows, count, begin, pixels, strides, unchanged,
               mark_unchanged, out)  # fmt: skip


@kernel(
    types.void(
        _SOURCE, NUMBERS, NUMBERS, NUMBERS, INT, INT, INT, FACTORS, INT, START, types.boolean,
        INT, TABLE_OUT, TABLE_OUT, FLAT_OUT, FLAT_OUT, FLAT_OUT, TABLE_OUT,
    )
)  # fmt: skip
def observe_and_spread(
    source: Any, offsets: Any, sizes: Any, steps: Any, first: int, stop: int, block: int,
    left: Any, depth: int, start: Any, symmetric: bool, fraction: int,
    prefix_widths: Any, final_widths: Any, lows: Any, highs: Any, finals: Any, extremes: Any,
) -> None:  # fmt: skip
    """Adds the same sums, without a range, to counts and histograms; see `sum_statistics.spread`.

    Widens `extremes`.
    """
    rows, zero = start.shape[0], np.zeros(1, np.int32)
    matrix = np.empty(offsets.size * block + COLUMNS_16, np.int16)
    panel = np.empty((block + COLUMNS_32) * depth, np.int16)
    final, low, high = (
        np.empty(rows * block, np.int64), np.empty(rows * block, np.int64),
        np.empty(rows * block, np.int64),
    )  # fmt: skip
    here = np.empty((4, rows), np.int64)
    for begin in range(first, stop, block):
        count = min(block, stop - begin)
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
