"""Large float32 products and convolutions by our own compiled kernels, shared out to threads.

OpenBLAS leaves half the speed of some processors unused, and wants patches written out first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter import memory, parallel
from tracer.interpreter.compiled import loaded
from tracer.interpreter.layout import layout, source
from tracer.interpreter.values import Array
from tracer.interpreter.windows import Window

_WORTHWHILE = 1 << 17
"""Multiplications from which the kernels are used: below, a call costs more than it saves."""
_BLOCK = 1 << 23
"""Multiplications of one block of work: long against handing it to a thread."""
_IMAGES = 1 << 24
"""Multiplications of images that are computed one after the other in a block."""
_FEWEST = 4
"""With fewer rows or columns memory is the bound, where BLAS has its own ways."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the right side of a product lies: column p is `source[start + offsets + p]`.

    `count` columns make lines of `grid`, of which the first `width` are wanted.
    """

    source: Array
    offsets: Array
    start: int
    count: int
    grid: int
    width: int


@dataclass(frozen=True, slots=True)
class Images:
    """How many products follow each other, how far apart in the source and in matrices."""

    count: int
    step: int
    matrices: int


_ONE = Images(1, 0, 0)


def suits(dtype: np.dtype[np.generic], rows: int, depth: int, columns: int) -> bool:
    """Whether a product of (rows, depth) and (depth, columns) is one for the kernels."""
    large = rows * depth * columns >= _WORTHWHILE
    return large and dtype == np.float32 and rows >= _FEWEST and columns >= _FEWEST


def matmul(a: Array, b: Array, out: Array) -> None:
    """The product of float32 matrices into a contiguous `out`."""
    wide = b.shape[1]
    if a.shape[1] != len(b):  # the kernels check nothing
        raise ModelError(f"matrices of {list(a.shape)} and {list(b.shape)} cannot be multiplied")
    offsets = np.arange(len(b), dtype=np.int64) * wide
    right = Columns(np.ascontiguousarray(b).reshape(-1), offsets, 0, wide, wide, wide)
    jobs = [(part, piece) for part, piece in _pieces(len(a), len(b), wide)]
    left = _left(a)
    shift = np.zeros(len(left) // max(len(b), 1), np.float32)

    def block(index: int) -> None:
        _block(left, right, *jobs[index], shift, out[None], _ONE)

    parallel.run_blocks(len(jobs), block)


def convolve(x: Array, weights: Array, window: Window, group: int, bias: Array | None) -> Array:
    """Convolve float32 `x` (N, C, *size), one or two axes, with `weights`; add the bias."""
    limits.allow((len(x), len(weights), *window.out), np.float32)
    out = memory.empty((len(x), len(weights), *window.out), np.float32)
    maps, deep = len(weights) // group, weights.shape[1]
    matrices = out.reshape(len(x) * group, maps, -1)
    lefts = [_left(part.reshape(maps, -1)) for part in np.split(weights, group)]
    shift = np.zeros(len(weights), np.float32) if bias is None else bias
    shifts = [_left(part[:, None]) for part in np.split(shift, group)]
    placed = layout(window)
    images, offsets = source(x, window, placed), placed.offsets(deep)
    pieces = _pieces(maps, len(offsets), placed.count)
    together = max(_IMAGES // (maps * len(offsets) * placed.count), 1)
    jobs = [
        (number, first, *piece)
        for first in parallel.pieces(len(x), together)
        for number in range(group)
        for piece in pieces
    ]

    def block(index: int) -> None:
        number, some, rows, part = jobs[index]
        first = some.start * group + number
        right = Columns(images, offsets, first * deep * placed.size, placed.count,
                        placed.grid, placed.width)  # fmt: skip
        many = Images(some.stop - some.start, group * deep * placed.size, group)
        _block(lefts[number], right, rows, part, shifts[number], matrices[first:], many)

    parallel.run_blocks(len(jobs), block)
    return out


def depthwise(x: Array, weights: Array, window: Window, bias: Array | None) -> Array:
    """Convolve float32 `x` with one kernel or several for each channel, and add the bias."""
    kernels = loaded("gemm")
    limits.allow((len(x), len(weights), *window.out), np.float32)
    out = memory.empty((len(x), len(weights), *window.out), np.float32)
    placed = layout(window)
    images, offsets = source(x, window, placed), placed.offsets(1)
    rows = np.ascontiguousarray(weights).reshape(-1)
    shift = np.zeros(len(weights), np.float32) if bias is None else np.ascontiguousarray(bias)
    flat, repeat, planes = out.reshape(-1), len(weights) // x.shape[1], len(x) * len(weights)
    work = len(offsets) * window.pixels
    parts = parallel.pieces(planes, max(_BLOCK // 16 // work, 1))

    def block(index: int) -> None:
        part = parts[index]
        made = np.empty(placed.count + kernels.STRETCH, np.float32)
        kernels.depthwise(images, placed.size, offsets, rows, shift, repeat, part.start, part.stop,
                          placed.count, placed.grid, placed.width, made, flat,
                          window.pixels)  # fmt: skip

    parallel.run_blocks(len(parts), block)
    return out


def _block(
    left: Array,
    right: Columns,
    rows: slice,
    part: slice,
    bias: Array,
    out: Array,
    images: Images,
) -> None:
    """Some rows, some columns of the flat (rows, pixels) of one or several matrices of `out`."""
    kernels = loaded("gemm")
    count, many = part.stop - part.start, rows.stop - rows.start
    panel = np.empty(kernels.DEPTH * kernels.COLUMNS, np.float32)
    flat, pixels = out.reshape(-1), out.shape[2]
    place = rows.start * pixels
    whole = count % kernels.LANES == 0 and many % kernels.ROWS == 0
    if whole and images.count == 1 and right.grid == right.width:  # nothing to leave out
        kernels.product(left, rows.start, rows.stop, right.source, right.offsets,
                        right.start + part.start, count, bias, panel, flat, place + part.start,
                        pixels)  # fmt: skip
        return
    wide = -(-count // kernels.LANES) * kernels.LANES
    made = np.empty(-(-many // kernels.ROWS) * kernels.ROWS * wide, np.float32)
    far = images.matrices * out.shape[1] * pixels
    kernels.images(left, rows.start, rows.stop, right.source, right.offsets, right.start,
                   images.step, images.count, part.start, count, bias, right.grid, right.width,
                   panel, made, flat, place, far, pixels)  # fmt: skip


def _pieces(rows: int, depth: int, columns: int) -> list[tuple[slice, slice]]:
    """Rows and columns of each block, by the sizes alone."""
    kernels = loaded("gemm")
    panels = max(_BLOCK // (rows * depth * kernels.COLUMNS), 1)
    tiles = max(_BLOCK // (depth * kernels.COLUMNS * kernels.ROWS), 4)
    return [
        (part, piece)
        for part in parallel.pieces(rows, tiles * kernels.ROWS)
        for piece in parallel.pieces(columns, panels * kernels.COLUMNS)
    ]


def _left(matrix: Array) -> Array:
    """The rows flat, filled up to whole tiles."""
    tile = loaded("gemm").ROWS
    rows, depth = matrix.shape
    missing = -rows % tile
    if not missing:
        return np.ascontiguousarray(matrix).reshape(-1)
    made = np.zeros((rows + missing, depth), np.float32)
    made[:rows] = matrix
    return made.reshape(-1)
