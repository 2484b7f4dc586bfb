"""Products of float32 rows with columns that lie anywhere: matrices, or patches of an image.

Column p of the right matrix is `source[offsets[k] + p]` for k = 0, 1, ...: a row-major matrix has
`offsets[k] = k * width`; a convolution over a flat, padded image has one offset for each channel
and kernel position. Patches are so never written out as a whole, only panel by panel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from tracer.interpreter.kernels.micro import (
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

DEPTH = 512
"""Terms of a panel: it stays in the second-level cache while all rows pass over it."""

_FEW = 4
"""Tiles of rows that read their columns where they lie."""

_INT = types.intp
_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")
_GEOMETRY = types.Array(types.int64, 2, "C")
_PLACES = types.Array(types.int64, 1, "C", readonly=True)


@njit(types.void(_READ, _INT, _PLACES, _INT, _INT, _INT, _WRITE), nogil=True, cache=True)
def _pack(
    source: Any, place: int, offsets: Any, first: int, depth: int, vectors: int, panel: Any
) -> None:
    """Copy a panel; lanes beyond the columns read what follows, and never beyond the source."""
    lanes = vectors * LANES
    safe = depth
    while safe > 0 and offsets[first + safe - 1] + place + lanes > source.size:
        safe -= 1
    if safe > 0:
        if vectors == 1:
            pack_1(source, place, offsets, first, safe, panel)
        elif vectors == 2:
            pack_2(source, place, offsets, first, safe, panel)
        else:
            pack_3(source, place, offsets, first, safe, panel)
    for k in range(safe, depth):
        origin = offsets[first + k] + place
        for lane in range(lanes):
            inside = origin + lane < source.size
            panel[k * lanes + lane] = source[origin + lane] if inside else np.float32(0)


@njit(
    types.void(_READ, _INT, _INT, _READ, _PLACES, _INT, _INT, _READ, _WRITE, _WRITE, _INT, _INT),
    nogil=True,
    cache=True,
)
def product(
    left: Any, low: int, high: int, source: Any, offsets: Any, start: int, count: int,
    bias: Any, panel: Any, out: Any, place: int, width: int,
) -> None:  # fmt: skip
    """Rows `low` to `high` of `left` times `count` columns from `start`, plus the bias of rows.

    Row i of the result is `out[place + i * width:]`. Whole tiles are written: rows up to a
    multiple of ROWS, columns up to one of LANES; `left` and `bias` have as many rows. `panel` is
    scratch of DEPTH * COLUMNS elements.
    """
    depth = offsets.size
    few = high - low <= _FEW * ROWS
    for column in range(0, count, COLUMNS):
        vectors = (min(COLUMNS, count - column) + LANES - 1) // LANES
        origin = start + column
        for k in range(0, depth, DEPTH):
            deep = min(DEPTH, depth - k)
            # What few rows read is not worth copying, if all of it lies within the source: the
            # last offset is the largest, but for strides, where the source has room at its end.
            last = offsets[depth - 1] + origin + COLUMNS
            in_place = few and vectors == 3 and last <= source.size
            if not in_place:
                _pack(source, origin, offsets, k, deep, vectors, panel)
            for row in range(low, high, ROWS):
                t = place + (row - low) * width + column
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


@njit(
    types.void(_READ, _INT, _INT, _INT, _INT, _INT, _INT, _WRITE, _INT, _INT),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def unpack(
    made: Any, stride: int, rows: int, start: int, count: int, grid: int, width: int,
    out: Any, place: int, pixels: int,
) -> None:  # fmt: skip
    """Copy a product without the columns that lie between the lines of an image.

    Row i of it is `made[i * stride:]`, `count` columns from the flat column `start` on. Column f
    is pixel f % grid of line f // grid, and goes to `out[place + i * pixels:]` if that is below
    `width`.
    """
    for row in range(rows):
        flat = start
        while flat < start + count:
            line, pixel = flat // grid, flat % grid
            run = min(grid - pixel, start + count - flat)
            source = row * stride + flat - start
            target = place + row * pixels + line * width + pixel
            there, here = np.uintp(target), np.uintp(source)  # unsigned: see `planes`
            for i in range(np.uintp(max(min(run, width - pixel), 0))):
                out[there + i] = made[here + i]
            flat += run


@njit(
    types.void(
        _READ,
        _INT,
        _INT,
        _READ,
        _PLACES,
        _INT,
        _INT,
        _INT,
        _INT,
        _INT,
        _READ,
        _INT,
        _INT,
        _WRITE,
        _WRITE,
        _WRITE,
        _INT,
        _INT,
        _INT,
    ),
    nogil=True,
    cache=True,
)
def images(
    left: Any, low: int, high: int, source: Any, offsets: Any, start: int, step: int, many: int,
    flat: int, count: int, bias: Any, grid: int, width: int,
    panel: Any, made: Any, out: Any, place: int, far: int, pixels: int,
) -> None:  # fmt: skip
    """`product` and `unpack` for `many` images, `step` apart in the source and `far` in `out`."""
    wide = (count + LANES - 1) // LANES * LANES
    for image in range(many):
        begin = start + image * step + flat
        product(left, low, high, source, offsets, begin, count, bias, panel, made, 0, wide)
        target = place + image * far
        unpack(made, wide, high - low, flat, count, grid, width, out, target, pixels)


@njit(
    types.void(
        _READ,
        _INT,
        _PLACES,
        _READ,
        _READ,
        _INT,
        _INT,
        _INT,
        _INT,
        _INT,
        _INT,
        _WRITE,
        _WRITE,
        _INT,
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def depthwise(
    source: Any, size: int, offsets: Any, weights: Any, bias: Any, repeat: int, low: int,
    high: int, count: int, grid: int, width: int, made: Any, out: Any, pixels: int,
) -> None:  # fmt: skip
    """Planes `low` to `high`, each the sum of its kernel's weights times places of its channel.

    `repeat` planes share a channel of `size` elements; weights and biases begin again with every
    image. `made` is scratch of `count` elements and a stretch more; `width` of every `grid`
    elements are wanted.
    """
    depth = offsets.size
    for plane in range(low, high):
        channel = plane % bias.size
        start = plane // repeat * size
        for flat in range(0, count, STRETCH):
            taps(source, start + flat, offsets, weights, channel * depth, depth, made, flat)
        if bias[channel] != 0:
            for flat in range(count):
                made[flat] += bias[channel]
        unpack(made, 0, 1, 0, count, grid, width, out, plane * pixels, pixels)


@njit(types.void(_READ, _INT, _WRITE, _INT, _INT, _INT), nogil=True, cache=True)
def _line(images: Any, place: int, out: Any, target: int, count: int, step: int) -> None:
    """Copy every `step`-th element; indices are unsigned, see `planes`."""
    here, there = np.uintp(place), np.uintp(target)
    if step == 1:
        for i in range(np.uintp(count)):
            out[there + i] = images[here + i]
    else:
        wide = np.uintp(step)
        for i in range(np.uintp(count)):
            out[there + i] = images[here + i * wide]


@njit(types.void(_WRITE, _INT, _INT), nogil=True, cache=True)
def _zeros(out: Any, target: int, count: int) -> None:
    there = np.uintp(target)
    for i in range(np.uintp(count)):
        out[there + i] = np.float32(0)


@njit(types.void(_READ, _INT, _INT, _GEOMETRY, _GEOMETRY, _WRITE), nogil=True, cache=True)
def arrange(images: Any, low: int, high: int, geometry: Any, phases: Any, out: Any) -> None:
    """Lay out planes `low` to `high` of flat images, padded with zeros and apart by phases.

    `geometry` has for lines, then for places in a line: size, cells, stride, padding before;
    `phases` has the phase of lines and places. `out` is flat (plane, phase, line, place).
    """
    height, lines, down, above = geometry[0]
    width, cells, across, left = geometry[1]
    target = low * len(phases) * lines * cells
    for plane in range(low, high):
        for phase in range(len(phases)):
            skip = phases[phase, 1] - left
            first = min(max((-skip + across - 1) // across, 0), cells)
            stop = max(min((width - skip + across - 1) // across, cells), first)
            for line in range(lines):
                row = line * down + phases[phase, 0] - above
                if row < 0 or row >= height:
                    _zeros(out, target, cells)
                else:
                    origin = (plane * height + row) * width + skip + first * across
                    _zeros(out, target, first)
                    _line(images, origin, out, target + first, stop - first, across)
                    _zeros(out, target + stop, cells - stop)
                target += cells
