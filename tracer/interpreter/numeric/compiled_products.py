"""Large float32 products and convolutions by our own compiled kernels, shared out to threads.

OpenBLAS leaves half the speed of some processors unused, and wants patches written out first.
"""

from __future__ import annotations

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import buffer_pool, parallel, task_team
from tracer.interpreter.numeric.image_layout import layout, source
from tracer.interpreter.numeric.windows import Window
from tracer.support.types import Array

_WORTHWHILE = 1 << 17
"""Multiplications from which the kernels are used: below, a call costs more than it saves."""
_BLOCK = 1 << 21
"""Multiplications of a block: some 50 us, so that threads end a node at about the same time."""
_TILES = 32
"""Tiles of rows of a block at least, as every block packs its columns anew."""
_FEWEST = 4
"""With fewer rows or columns memory is the bound, where BLAS has its own ways."""


def suits(dtype: np.dtype[np.generic], rows: int, depth: int, columns: int) -> bool:
    """Whether a product of (rows, depth) and (depth, columns) is one for the kernels."""
    large = rows * depth * columns >= _WORTHWHILE
    return large and dtype == np.float32 and rows >= _FEWEST and columns >= _FEWEST


def matmul(a: Array, b: Array, out: Array) -> None:
    """The products of float32 matrices (N, M, K) and (N, K, P) into a contiguous (N, M, P)."""
    many, rows, depth = a.shape
    wide = b.shape[2]
    if b.shape[1] != depth:  # the kernels check nothing
        raise ModelError(
            f"matrices of {[rows, depth]} and {list(b.shape[1:])} cannot be multiplied"
        )
    offsets = np.arange(depth, dtype=np.int64) * wide
    left, right = _whole_tiles(a), np.ascontiguousarray(b)
    shift = np.zeros(left.shape[0] * left.shape[1], np.float32)
    tall, broad = _piece(rows, depth, wide)
    count = many * -(-rows // tall) * -(-wide // broad)
    task_team.share(loaded("gemm").matrices, count, (left, right, offsets, shift, out),
                (many, rows, tall, wide, broad, wide, wide, depth * wide, wide))  # fmt: skip


def convolve(x: Array, weights: Array, window: Window, group: int, bias: Array | None) -> Array:
    """Convolve float32 `x` (N, C, *size), one or two axes, with `weights`; add the bias."""
    limits.allow((len(x), len(weights), *window.out), np.float32)
    out = buffer_pool.empty((len(x), len(weights), *window.out), np.float32)
    maps, deep = len(weights) // group, weights.shape[1]
    left = _whole_tiles(weights.reshape(group, maps, -1))
    shift = np.zeros(len(weights), np.float32) if bias is None else bias
    placed = layout(window)
    images, offsets = source(x, window, placed), placed.offsets(deep)
    tall, broad = _piece(maps, len(offsets), placed.count)
    count = len(x) * group * -(-maps // tall) * -(-placed.count // broad)
    task_team.share(loaded("gemm").matrices, count,
                (left, images, offsets, _whole_tiles(shift.reshape(group, maps, 1)), out),
                (group, maps, tall, placed.count, broad, placed.grid, placed.width,
                 deep * placed.size, window.pixels))  # fmt: skip
    return out


def depthwise(x: Array, weights: Array, window: Window, bias: Array | None) -> Array:
    """Convolve float32 `x` with one kernel or several for each channel, and add the bias."""
    limits.allow((len(x), len(weights), *window.out), np.float32)
    out = buffer_pool.empty((len(x), len(weights), *window.out), np.float32)
    placed = layout(window)
    images, offsets = source(x, window, placed), placed.offsets(1)
    shift = np.zeros(len(weights), np.float32) if bias is None else np.ascontiguousarray(bias)
    planes, repeat = len(x) * len(weights), len(weights) // x.shape[1]
    each = max(_BLOCK // 16 // (len(offsets) * window.pixels), 1)
    task_team.share(loaded("gemm").depthwise, -(-planes // each),
                (images, offsets, np.ascontiguousarray(weights), shift, out),
                (placed.size, repeat, planes, each, placed.count, placed.grid, placed.width,
                 window.pixels))  # fmt: skip
    return out


def max_pool(x: Array, window: Window) -> Array:
    """The largest of each window of float32 `x` (N, C, *size), one or two axes; NaN is larger."""
    limits.allow((*x.shape[:2], *window.out), np.float32)
    out = buffer_pool.empty((*x.shape[:2], *window.out), np.float32)
    if _halves(x, window):
        _halve(x, window, out)
        return out
    placed = layout(window)
    images, offsets = source(x, window, placed, -np.inf), placed.offsets(1)
    planes = x.shape[0] * x.shape[1]
    each = max(_BLOCK // 16 // (len(offsets) * window.pixels), 1)
    task_team.share(loaded("gemm").max_pool, -(-planes // each), (images, offsets, out),
                (placed.size, planes, each, placed.count, placed.grid, placed.width,
                 window.pixels))  # fmt: skip
    return out


def _halves(x: Array, window: Window) -> bool:
    """Whether windows are two by two, side by side, within the image."""
    inside = all(2 * n <= size for n, size in zip(window.out, x.shape[2:], strict=True))
    twos = window.kernel == window.strides == (2, 2)
    return twos and inside and not any(window.before) and window.dilations == (1, 1)


def _halve(x: Array, window: Window, out: Array) -> None:
    kernel, images = loaded("pooling").halve, np.ascontiguousarray(x)
    parts = parallel.pieces(len(x), max(parallel.BLOCK * len(x) // images.size, 1))

    def block(index: int) -> None:
        some = parts[index]
        kernel(images[some].reshape(-1), *x.shape[2:], *window.out, out[some].reshape(-1))

    parallel.run_blocks(len(parts), block)


def _piece(rows: int, depth: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a block, by the sizes alone."""
    kernels = loaded("gemm")
    panels = max(_BLOCK // (rows * depth * kernels.COLUMNS), 1)
    most = max(_BLOCK // (depth * kernels.COLUMNS * kernels.ROWS), _TILES)
    tiles = -(-rows // kernels.ROWS)
    tall = -(-tiles // -(-tiles // most))  # of equal height: a thin rest would be slow
    return min(rows, tall * kernels.ROWS), min(columns, panels * kernels.COLUMNS)


def _whole_tiles(matrices: Array) -> Array:
    """Matrices one after the other, contiguous, their rows filled up to whole tiles."""
    count, rows, depth = matrices.shape
    missing = -rows % loaded("gemm").ROWS
    if not missing:
        return np.ascontiguousarray(matrices)
    made = np.zeros((count, rows + missing, depth), np.float32)
    made[:, :rows] = matrices
    return made
