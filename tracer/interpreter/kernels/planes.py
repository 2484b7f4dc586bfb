"""Convolutions of each channel by itself, max pooling, and the layout that they read.

Output p of a plane reads `source[offsets[k] + p]` for k = 0, 1, ...: one offset for each kernel
position, over a flat, padded image of float32. `arrange` lays images out so that neighbouring
outputs read neighbouring elements; `halve` pools 2 x 2 windows without.
"""

from typing import Any

import numpy as np
from llvmlite import ir

from tracer.interpreter.compiled_code import INTEGERS, READ, WRITTEN, entry, task
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    emitted,
    floats,
    free,
    helper,
    integers,
    new_floats,
    read_only,
    vector_type,
)
from tracer.interpreter.kernels.machine_code import REGISTER, VECTORS, Vectors

_INT = types.intp
_READ, _WRITE = read_only(types.float32), vector_type(types.float32)
_SUMS = 2 * VECTORS
STRETCH = _SUMS * REGISTER // 32
"""Sums that are computed at a time."""


@helper(types.void(_READ, _INT, _WRITE, _INT, _INT, _INT))
def _line(images: Any, start: int, out: Any, target: int, count: int, step: int) -> None:
    """Copies every `step`-th element; indices are unsigned, see `elementwise`."""
    here, there = np.uintp(start), np.uintp(target)
    if step == 1:
        for i in range(np.uintp(count)):
            out[there + i] = images[here + i]
    elif step == 2:  # a constant step is vectorised
        for i in range(np.uintp(count)):
            out[there + i] = images[here + i * np.uintp(2)]
    else:
        wide = np.uintp(step)
        for i in range(np.uintp(count)):
            out[there + i] = images[here + i * wide]


@helper(types.void(_WRITE, _INT, _INT, types.float32))
def _fill(out: Any, target: int, count: int, value: Any) -> None:
    there = np.uintp(target)
    for i in range(np.uintp(count)):
        out[there + i] = value


def _fits(
    _: int, images: Any, out: Any, geometry: Any, phases: Any, fill: Any, planes: int, each: int
) -> bool:
    """Whether the planes are in the images, and their cells in `out`."""
    if (geometry.size, phases.size % 2, fill.size) != (8, 0, 1) or each < 1:
        return False
    height, lines, down, _, width, cells, across, _ = geometry.ravel().tolist()
    return bool(
        min(height, lines, width, cells) >= 0 and down > 0 < across
        and planes * height * width <= images.size
        and planes * phases.size // 2 * lines * cells <= out.size
    )  # fmt: skip


@task(READ, WRITTEN, INTEGERS, INTEGERS, READ, fits=_fits)
def arrange(words: Any, block: int) -> None:
    """Arranges some planes of flat images, padded and split into phases.

    Arguments: images, `out` flat (plane, phase, line, column), geometry, phases, the fill value of
    padding (one element); planes in total and per block. Geometry holds size, cells, stride and
    padding before, for lines and then for columns; phases hold the phase of lines and of columns.
    """
    images, out = floats(words, 0), floats(words, 2)
    geometry, phases = integers(words, 4), integers(words, 6)
    fill, planes, each = floats(words, 8)[0], words[10], words[11]
    height, lines, down, above = geometry[0], geometry[1], geometry[2], geometry[3]
    width, cells, across, left = geometry[4], geometry[5], geometry[6], geometry[7]
    target = block * each * (phases.size // 2) * lines * cells
    for plane in range(block * each, min((block + 1) * each, planes)):
        for phase in range(0, phases.size, 2):
            skip = phases[phase + 1] - left
            first = min(max((-skip + across - 1) // across, 0), cells)
            stop = max(min((width - skip + across - 1) // across, cells), first)
            for line in range(lines):
                row = line * down + phases[phase] - above
                if row < 0 or row >= height:
                    _fill(out, target, cells, fill)
                else:
                    origin = (plane * height + row) * width + skip + first * across
                    _fill(out, target, first, fill)
                    _line(images, origin, out, target + first, stop - first, across)
                    _fill(out, target + stop, cells - stop, fill)
                target += cells


@emitted
def taps(
    typingctx: Any, source: Any, base: Any, offsets: Any, weights: Any, first: Any, depth: Any,
    out: Any, target: Any,
) -> Any:  # fmt: skip
    """Writes STRETCH sums, of `weights[first + k] * source[offsets[k] + base:]`, to `out[target:]`.

    Arrays are flat and contiguous; nothing is checked.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, base, _, _, first, depth, _, target = arguments
        v = Vectors(builder, 32)

        def data(position: int) -> Any:
            array = context.make_array(signature.args[position])
            return array(context, builder, arguments[position]).data

        source, out = v.at(data(0), base), v.at(data(6), target)
        offsets, weights = data(2), v.at(data(3), first)

        def term(k: Any, sums: list[Any]) -> list[Any]:
            factor = v.spread(builder.load(v.at(weights, k)))
            origin = v.at(source, builder.load(v.at(offsets, k)))
            columns = (v.load(v.at(origin, n * v.count)) for n in range(_SUMS))
            return [v.add_product(factor, *pair) for pair in zip(columns, sums, strict=True)]

        for n, value in enumerate(v.loop(depth, [ir.Constant(v.kind, None)] * _SUMS, term)):
            v.store(value, v.at(out, n * v.count))
        return context.get_dummy_value()

    i = types.intp
    return types.void(source, i, offsets, weights, i, i, out, i), code


@helper(types.void(_READ, _INT, _INT, _INT, _INT, _INT, _INT, _WRITE, _INT, _INT))
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
    READ, INTEGERS, READ, READ, WRITTEN,
    fits=lambda _, source, offsets, weights, bias, out, size, repeat, planes, each, *shape: (
        repeat > 0 < bias.size
        and weights.size == bias.size * offsets.size
        and _is_within(source, offsets, out, (planes - 1) // repeat * size,
                       -(-shape[0] // STRETCH) * STRETCH, planes, each, shape)
    ),
)  # fmt: skip
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
    sums = new_floats(count + STRETCH)
    for plane in range(block * each, min((block + 1) * each, planes)):
        channel = plane % bias.size
        start = plane // repeat * size
        for flat in range(0, count, STRETCH):
            taps(source, start + flat, offsets, weights, channel * depth, depth, sums, flat)
        if bias[channel] != 0:
            for flat in range(count):
                sums[flat] += bias[channel]
        unpack(sums, 0, 1, 0, count, grid, width, out, plane * pixels, pixels)
    free(sums)


@task(
    READ,
    INTEGERS,
    WRITTEN,
    fits=lambda _, source, offsets, out, size, planes, each, *shape: _is_within(
        source, offsets, out, (planes - 1) * size, shape[0], planes, each, shape
    ),
)
def max_pool(words: Any, block: int) -> None:
    """Computes some planes of max pooling: the maximum over the offsets.

    Arguments: source, offsets, out; elements of a channel, planes in total and per block, columns,
    grid and width (see `unpack`), elements of a plane of `out`. NaN counts as the largest.
    """
    source, offsets, out = floats(words, 0), integers(words, 2), floats(words, 4)
    size, planes, each, count = words[6], words[7], words[8], words[9]
    grid, width, pixels = words[10], words[11], words[12]
    maxima = new_floats(count)
    for plane in range(block * each, min((block + 1) * each, planes)):
        maxima[:] = -np.inf
        for offset in offsets:
            start = plane * size + offset
            values = source[start : start + count]
            for i in range(count):
                top, value = maxima[i], values[i]
                maxima[i] = top if (top >= value) | (top != top) else value
        unpack(maxima, 0, 1, 0, count, grid, width, out, plane * pixels, pixels)
    free(maxima)


@entry(lambda x, height, width, lines, columns, out: (
        0 < 2 * lines <= height
        and 0 < 2 * columns <= width
        and x.size * lines * columns == out.size * height * width
    ),
    types.void(_READ, _INT, _INT, _INT, _INT, _WRITE))  # fmt: skip
def halve(x: Any, height: int, width: int, lines: int, columns: int, out: Any) -> None:
    """Writes the maximum of adjacent 2 x 2 windows of flat planes (height, width).

    NaN counts as the largest. Indices are unsigned, see `elementwise`.
    """
    target, two = np.uintp(0), np.uintp(2)
    for plane in range(out.size // (lines * columns)):
        for line in range(lines):
            above = np.uintp((plane * height + 2 * line) * width)
            below = above + np.uintp(width)
            for i in range(np.uintp(columns)):
                here, there = above + i * two, below + i * two
                top = x[here]
                for value in (x[here + np.uintp(1)], x[there], x[there + np.uintp(1)]):
                    top = value if (value > top) | (value != value) else top
                out[target + i] = top
            target += np.uintp(columns)
