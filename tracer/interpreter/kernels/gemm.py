"""Float32 matrix products, convolutions, depthwise convolutions and max pooling by offsets.

Column p of the right matrix is `source[offsets[k] + p]` for k = 0, 1, ...: a row-major matrix has
`offsets[k] = k * width`; a convolution over a flat, padded image has one offset per channel and
kernel position. Patches are copied only panel by panel, never all at once.
"""

from typing import Any

import numpy as np
from numba import cfunc, njit, types

from tracer.interpreter.kernels.register_tiles import (
    COLUMNS,
    LANES,
    ROWS,
    STRETCH,
    multiply_1,
    multiply_2,
    multiply_3,
    multiply_in_place_3,
    pack_1,
    pack_2,
    pack_3,
    taps,
)
from tracer.interpreter.kernels.task_arguments import TASK, floats, integers

DEPTH = 512
"""Terms of a panel, which stays in the second-level cache while all rows use it."""

_FEW = 4
"""Up to so many tiles of rows read their columns without packing."""

_INT = types.intp
_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")
_PLACES = types.Array(types.int64, 1, "C", readonly=True)


@njit(types.void(_READ, _INT, _PLACES, _INT, _INT, _INT, _WRITE), nogil=True, cache=True)
def _pack(
    source: Any, start: int, offsets: Any, first: int, depth: int, vectors: int, panel: Any
) -> None:
    """Copies a panel; lanes beyond the columns read what follows, but never past the source."""
    lanes = vectors * LANES
    safe = depth
    while safe > 0 and offsets[first + safe - 1] + start + lanes > source.size:
        safe -= 1
    if safe > 0:
        if vectors == 1:
            pack_1(source, start, offsets, first, safe, panel)
        elif vectors == 2:
            pack_2(source, start, offsets, first, safe, panel)
        else:
            pack_3(source, start, offsets, first, safe, panel)
    for k in range(safe, depth):
        origin = offsets[first + k] + start
        for lane in range(lanes):
            inside = origin + lane < source.size
            panel[k * lanes + lane] = source[origin + lane] if inside else np.float32(0)


@njit(_INT(_INT), nogil=True, cache=True)
def _panel(columns: int) -> int:
    """Returns the vectors of the next panel: two and two rather than three and one."""
    vectors = (columns + LANES - 1) // LANES
    return 2 if vectors == 4 else min(vectors, COLUMNS // LANES)


@njit(
    types.void(_READ, _INT, _INT, _READ, _PLACES, _INT, _INT, _READ, _WRITE, _WRITE, _INT, _INT),
    nogil=True,
    cache=True,
)
def product(
    left: Any, low: int, high: int, source: Any, offsets: Any, start: int, count: int,
    bias: Any, panel: Any, out: Any, base: int, width: int,
) -> None:  # fmt: skip
    """Multiplies rows `low` to `high` of `left` by `count` columns from `start`; adds the bias.

    Row i of the result is `out[base + i * width:]`. Whole tiles are written: rows up to a
    multiple of ROWS, columns up to a multiple of LANES; `left` and `bias` have as many rows.
    `panel` is scratch memory of DEPTH * COLUMNS elements.
    """
    depth = offsets.size
    few = high - low <= _FEW * ROWS
    column = 0
    while column < count:
        vectors = _panel(count - column)
        origin = start + column
        for k in range(0, depth, DEPTH):
            deep = min(DEPTH, depth - k)
            # For few rows packing does not pay, if all columns lie within the source: the last
            # offset is the largest, except with strides, where the source has room at its end.
            last = offsets[depth - 1] + origin + COLUMNS
            in_place = few and vectors == 3 and last <= source.size
            if not in_place:
                _pack(source, origin, offsets, k, deep, vectors, panel)
            for row in range(low, high, ROWS):
                t = base + (row - low) * width + column
                f = row * depth + k
                if in_place:
                    multiply_in_place_3(
                        left, f, depth, deep, k > 0, panel, out, t, width, bias, row,
                        source, origin, offsets, k,
                    )  # fmt: skip
                elif vectors == 1:
                    multiply_1(left, f, depth, deep, k > 0, panel, out, t, width, bias, row)
                elif vectors == 2:
                    multiply_2(left, f, depth, deep, k > 0, panel, out, t, width, bias, row)
                else:
                    multiply_3(left, f, depth, deep, k > 0, panel, out, t, width, bias, row)
        column += vectors * LANES


@njit(
    types.void(_READ, _INT, _INT, _INT, _INT, _INT, _INT, _WRITE, _INT, _INT),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def unpack(
    product: Any, stride: int, rows: int, start: int, count: int, grid: int, width: int,
    out: Any, base: int, pixels: int,
) -> None:  # fmt: skip
    """Copies a product without the columns between the lines of an image.

    Row i is `product[i * stride:]`, with `count` columns from the flat column `start` on. Column f
    is pixel f % grid of line f // grid; pixels below `width` go to `out[base + i * pixels:]`.
    """
    for row in range(rows):
        flat = start
        while flat < start + count:
            line, pixel = flat // grid, flat % grid
            run = min(grid - pixel, start + count - flat)
            source = row * stride + flat - start
            target = base + row * pixels + line * width + pixel
            there, here = np.uintp(target), np.uintp(source)  # unsigned: see `elementwise`
            for i in range(np.uintp(max(min(run, width - pixel), 0))):
                out[there + i] = product[here + i]
            flat += run


@njit(
    types.void(
        _READ, _INT, _READ, _PLACES, _INT, _INT, _INT, _READ, _INT, _INT, _WRITE, _INT, _INT
    ),
    nogil=True,
    cache=True,
)
def _block(
    left: Any, rows: int, source: Any, offsets: Any, start: int, flat: int, count: int,
    bias: Any, grid: int, width: int, out: Any, base: int, pixels: int,
) -> None:  # fmt: skip
    """Computes `product` directly into `out` if whole tiles fit, else by way of `unpack`."""
    panel = np.empty(DEPTH * COLUMNS, np.float32)
    if count % LANES == 0 and rows % ROWS == 0 and grid == width:  # no columns to skip
        product(left, 0, rows, source, offsets, start + flat, count, bias, panel, out,
                base + flat, pixels)  # fmt: skip
        return
    wide = (count + LANES - 1) // LANES * LANES
    tiles = np.empty((rows + ROWS - 1) // ROWS * ROWS * wide, np.float32)
    product(left, 0, rows, source, offsets, start + flat, count, bias, panel, tiles, 0, wide)
    unpack(tiles, wide, rows, flat, count, grid, width, out, base, pixels)


@cfunc(TASK, cache=True, error_model="numpy")
def matrices(words: Any, block: int) -> None:
    """Computes some rows and columns of one of many products, stored one after the other.

    Arguments: left, source, offsets, bias, out; the number of left matrices, used in turn; rows of
    a matrix and of a block; columns of a matrix and of a block; grid and width (see `unpack`);
    elements of a right matrix in the source; columns of a matrix in `out`.
    """
    left, source, offsets = floats(words, 0), floats(words, 2), integers(words, 4)
    bias, out = floats(words, 6), floats(words, 8)
    group, rows, tall, count, wide = words[10], words[11], words[12], words[13], words[14]
    grid, width, step, pixels = words[15], words[16], words[17], words[18]
    down, across = (rows + tall - 1) // tall, (count + wide - 1) // wide
    matrix, part = block // (down * across), block % (down * across)
    low, flat = part // across * tall, part % across * wide
    row = matrix % group * ((rows + ROWS - 1) // ROWS * ROWS) + low
    _block(left[row * offsets.size :], min(tall, rows - low), source, offsets, matrix * step,
           flat, min(wide, count - flat), bias[row:], grid, width, out,
           (matrix * rows + low) * pixels, pixels)  # fmt: skip


@cfunc(TASK, cache=True, error_model="numpy")
def depthwise(words: Any, block: int) -> None:
    """Computes some planes of a depthwise convolution.

    Arguments: source, offsets, weights, bias, out; elements of a channel, planes per channel,
    planes in total and per block, columns, grid and width (see `unpack`), elements of a plane of
    `out`. Weights and biases repeat for every image.
    """
    source, offsets, weights = floats(words, 0), integers(words, 2), floats(words, 4)
    bias, out = floats(words, 6), floats(words, 8)
    size, repeat, planes, each = words[10], words[11], words[12], words[13]
    count, grid, width, pixels = words[14], words[15], words[16], words[17]
    depth = offsets.size
    sums = np.empty(count + STRETCH, np.float32)
    for plane in range(block * each, min((block + 1) * each, planes)):
        channel = plane % bias.size
        start = plane // repeat * size
        for flat in range(0, count, STRETCH):
            taps(source, start + flat, offsets, weights, channel * depth, depth, sums, flat)
        if bias[channel] != 0:
            for flat in range(count):
                sums[flat] += bias[channel]
        unpack(sums, 0, 1, 0, count, grid, width, out, plane * pixels, pixels)


@cfunc(TASK, cache=True, error_model="numpy")
def max_pool(words: Any, block: int) -> None:
    """Computes some planes of max pooling: the maximum over the offsets.

    Arguments: source, offsets, out; elements of a channel, planes in total and per block, columns,
    grid and width (see `unpack`), elements of a plane of `out`. NaN counts as the largest.
    """
    source, offsets, out = floats(words, 0), integers(words, 2), floats(words, 4)
    size, planes, each, count = words[6], words[7], words[8], words[9]
    grid, width, pixels = words[10], words[11], words[12]
    maxima = np.empty(count, np.float32)
    for plane in range(block * each, min((block + 1) * each, planes)):
        maxima[:] = -np.inf
        for offset in offsets:
            start = plane * size + offset
            values = source[start : start + count]
            for i in range(count):
                top, value = maxima[i], values[i]
                maxima[i] = top if (top >= value) | (top != top) else value
        unpack(maxima, 0, 1, 0, count, grid, width, out, plane * pixels, pixels)
