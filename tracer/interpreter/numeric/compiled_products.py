"""Large float32 matrix products, convolutions and max pooling by compiled kernels on threads.

OpenBLAS reaches half the speed on some processors, and needs the patches as a matrix first.
"""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import buffer_pool, parallel, task_team, tile_tasks
from tracer.interpreter.numeric.image_layout import layout, source
from tracer.interpreter.numeric.tile_tasks import Columns
from tracer.interpreter.numeric.windows import Window
from tracer.support.types import Array

_WORTHWHILE = 1 << 17
"""Multiplications; below, a call costs more than it saves."""
_BLOCK = 1 << 21
"""Multiplications of a block: about 50 us, so that threads finish a node together."""
_FEWEST = 4
"""With fewer rows or columns memory is the bound, and BLAS is faster."""


def suits(dtype: np.dtype[np.generic], rows: int, depth: int, columns: int) -> bool:
    """Whether the kernels suit a product of (rows, depth) and (depth, columns)."""
    large = rows * depth * columns >= _WORTHWHILE
    return large and dtype == np.float32 and rows >= _FEWEST and columns >= _FEWEST


def matmul(a: Array, b: Array, out: Array) -> None:
    """Multiplies float32 matrices (N, M, K) and (N, K, P) into a contiguous (N, M, P)."""
    count, rows, depth = a.shape
    wide = b.shape[2]
    if b.shape[1] != depth:  # the kernels do not check
        raise ModelError(
            f"matrices of {[rows, depth]} and {list(b.shape[1:])} cannot be multiplied"
        )
    columns = Columns(
        np.ascontiguousarray(b).reshape(-1), np.arange(depth, dtype=np.int64) * wide,
        (1, 1, wide), (0, 0, 1), (0, wide, 1), count, (depth * wide, rows * wide),
    )  # fmt: skip
    zeros = np.zeros((count, rows), np.float32)
    _run(a, zeros, columns, out)


def convolve(x: Array, weights: Array, window: Window, group: int, bias: Array | None) -> Array:
    """Convolves float32 `x` (N, C, *size) over one or two axes; adds the bias."""
    limits.allow((len(x), len(weights), *window.out), np.float32)
    out = buffer_pool.empty((len(x), len(weights), *window.out), np.float32)
    maps, deep, pixels = len(weights) // group, weights.shape[1], window.pixels
    shift = np.zeros(len(weights), np.float32) if bias is None else bias
    arranged = layout(window)
    lines = pixels // arranged.width
    columns = Columns(
        source(x, window, arranged), arranged.offsets(deep), (len(x), lines, arranged.width),
        (group * deep * arranged.size, arranged.grid, 1), (len(weights) * pixels, pixels, 1),
        group, (deep * arranged.size, maps * pixels),
    )  # fmt: skip
    left, begins = weights.reshape(group, maps, -1), shift.reshape(group, maps)
    _run(left, begins, columns, out)
    return out


def _run(left: Array, begins: Array, columns: Columns, out: Array) -> None:
    tiles = loaded("tile_code")
    tile_tasks.run(tiles.NOTHING, tiles.FLOATS, left, begins, columns, [out.reshape(-1)])


def depthwise(x: Array, weights: Array, window: Window, bias: Array | None) -> Array:
    """Convolves float32 `x` with one or several kernels per channel; adds the bias."""
    limits.allow((len(x), len(weights), *window.out), np.float32)
    out = buffer_pool.empty((len(x), len(weights), *window.out), np.float32)
    arranged = layout(window)
    images, offsets = source(x, window, arranged), arranged.offsets(1)
    shift = np.zeros(len(weights), np.float32) if bias is None else np.ascontiguousarray(bias)
    planes, repeat = len(x) * len(weights), len(weights) // x.shape[1]
    each = max(_BLOCK // 16 // (len(offsets) * window.pixels), 1)
    task_team.share(loaded("planes").depthwise, -(-planes // each),
                (images, offsets, np.ascontiguousarray(weights), shift, out),
                (arranged.size, repeat, planes, each, arranged.count, arranged.grid, arranged.width,
                 window.pixels))  # fmt: skip
    return out


def max_pool(x: Array, window: Window) -> Array:
    """Returns the maximum of each window of float32 `x` (N, C, *size); NaN is the largest."""
    limits.allow((*x.shape[:2], *window.out), np.float32)
    out = buffer_pool.empty((*x.shape[:2], *window.out), np.float32)
    if _halves(x, window):
        _halve(x, window, out)
        return out
    arranged = layout(window)
    images, offsets = source(x, window, arranged, -np.inf), arranged.offsets(1)
    planes = x.shape[0] * x.shape[1]
    each = max(_BLOCK // 16 // (len(offsets) * window.pixels), 1)
    task_team.share(loaded("planes").max_pool, -(-planes // each), (images, offsets, out),
                (arranged.size, planes, each, arranged.count, arranged.grid, arranged.width,
                 window.pixels))  # fmt: skip
    return out


def _halves(x: Array, window: Window) -> bool:
    """Whether windows are 2 x 2, adjacent and inside the image."""
    inside = all(2 * n <= size for n, size in zip(window.out, x.shape[2:], strict=True))
    twos = window.kernel == window.strides == (2, 2)
    return twos and inside and not any(window.before) and window.dilations == (1, 1)


def _halve(x: Array, window: Window, out: Array) -> None:
    kernel, images = loaded("pooling").halve, np.ascontiguousarray(x)
    parts = parallel.pieces(len(x), max(parallel.BLOCK * len(x) // images.size, 1))

    def block(index: int) -> None:
        part = parts[index]
        kernel(images[part].reshape(-1), *x.shape[2:], *window.out, out[part].reshape(-1))

    parallel.run_blocks(len(parts), block)
