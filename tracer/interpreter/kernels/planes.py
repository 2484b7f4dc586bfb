"""Depthwise convolutions and max pooling of float32 by offsets.

Output p of a plane reads `source[offsets[k] + p]` for k = 0, 1, ...: one offset for each kernel
position, over a flat, padded image.
"""

from typing import Any

import numpy as np
from numba import cfunc, njit, types

from tracer.interpreter.kernel_entries import INTEGERS, READ, WRITTEN, task
from tracer.interpreter.kernels.taps import STRETCH, taps
from tracer.interpreter.kernels.task_arguments import TASK, floats, integers

_INT = types.intp
_READ = types.Array(types.float32, 1, "C", readonly=True)
_WRITE = types.Array(types.float32, 1, "C")


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


def _is_within(
    source: Any, offsets: Any, out: Any, first: int, read: int, planes: int, each: int,
    shape: tuple[int, int, int, int],
) -> bool:  # fmt: skip
    """Whether `read` elements from each offset are in the source, from its element `first` on.

    `shape` are columns, grid, width and pixels, which are in `out`.
    """
    (count, grid, width, pixels), places = shape, offsets.tolist()
    if min(count, grid, width, planes, each, len(places)) < 1 or min(places) < 0:
        return False
    line, pixel = divmod(count - 1, grid)
    written = line * width + min(width, pixel + 1)
    reads = first + max(places) + read
    return bool(written <= pixels and planes * pixels <= out.size and reads <= source.size)


@task(
    READ,
    INTEGERS,
    READ,
    READ,
    WRITTEN,
    fits=lambda _, source, offsets, weights, bias, out, size, repeat, planes, each, *shape: (
        repeat > 0 < bias.size
        and weights.size == bias.size * offsets.size
        and _is_within(
            source,
            offsets,
            out,
            (planes - 1) // repeat * size,
            -(-shape[0] // STRETCH) * STRETCH,
            planes,
            each,
            shape,
        )
    ),
)
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


@task(
    READ,
    INTEGERS,
    WRITTEN,
    fits=lambda _, source, offsets, out, size, planes, each, *shape: _is_within(
        source, offsets, out, (planes - 1) * size, shape[0], planes, each, shape
    ),
)
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
