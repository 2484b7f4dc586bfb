"""Large float32 products and convolutions by our own compiled kernels, shared out to threads.

OpenBLAS leaves half the speed of some processors unused, and wants patches written out first.
numba and the kernels are loaded, and once compiled, when the first large product needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np

from tracer import limits
from tracer.interpreter import memory, parallel
from tracer.interpreter.values import Array
from tracer.interpreter.windows import Window

Announce = Callable[[int, int, str], None]
_ANNOUNCE: ContextVar[Announce | None] = ContextVar("announce", default=None)

_WORTHWHILE = 1 << 20
"""Multiplications from which the kernels are used: below, a call costs more than it saves."""
_BLOCK = 1 << 23
"""Multiplications of one block of work: long against handing it to a thread."""
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


@contextmanager
def announced(announce: Announce | None) -> Iterator[None]:
    """Let `announce` be told of the kernels being loaded or compiled, during this time."""
    token = _ANNOUNCE.set(announce)
    try:
        yield
    finally:
        _ANNOUNCE.reset(token)


def suits(dtype: np.dtype[np.generic], rows: int, depth: int, columns: int) -> bool:
    """Whether a product of (rows, depth) and (depth, columns) is one for the kernels."""
    large = rows * depth * columns >= _WORTHWHILE
    return large and dtype == np.float32 and rows >= _FEWEST and columns >= _FEWEST


def matmul(a: Array, b: Array, out: Array) -> None:
    """The product of float32 matrices into a contiguous `out`."""
    wide = b.shape[1]
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
    layout = _layout(window)
    source, offsets = _source(x, window, layout), layout.offsets(deep)
    pieces = _pieces(maps, len(offsets), layout.count)
    together = max(_BLOCK // (maps * len(offsets) * layout.count), 1)
    jobs = [
        (number, first, *piece)
        for first in parallel.pieces(len(x), together)
        for number in range(group)
        for piece in pieces
    ]

    def block(index: int) -> None:
        number, images, rows, part = jobs[index]
        first = images.start * group + number
        right = Columns(source, offsets, first * deep * layout.size, layout.count,
                        layout.grid, layout.width)  # fmt: skip
        many = Images(images.stop - images.start, group * deep * layout.size, group)
        _block(lefts[number], right, rows, part, shifts[number], matrices[first:], many)

    parallel.run_blocks(len(jobs), block)
    return out


def depthwise(x: Array, weights: Array, window: Window, bias: Array | None) -> Array:
    """Convolve float32 `x` with one kernel or several for each channel, and add the bias."""
    kernels = _kernels()
    limits.allow((len(x), len(weights), *window.out), np.float32)
    out = memory.empty((len(x), len(weights), *window.out), np.float32)
    layout = _layout(window)
    source, offsets = _source(x, window, layout), layout.offsets(1)
    rows = np.ascontiguousarray(weights).reshape(-1)
    planes = out.reshape(len(x) * len(weights), -1)
    repeat, pixels = len(weights) // x.shape[1], window.pixels
    parts = parallel.pieces(len(planes), max(_BLOCK // 16 // (len(offsets) * pixels), 1))

    def block(index: int) -> None:
        made = np.empty(layout.count + kernels.STRETCH, np.float32)
        for number in range(parts[index].start, parts[index].stop):
            channel = number % len(weights)
            start = (number // repeat) * layout.size
            kernels.depthwise(source, start, offsets, rows, channel * len(offsets), layout.count,
                              made)  # fmt: skip
            kernels.unpack(made, 0, 1, 0, layout.count, layout.grid, layout.width,
                           planes[number], 0, pixels)  # fmt: skip
            if bias is not None:
                planes[number] += bias[channel]

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
    kernels = _kernels()
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
    kernels = _kernels()
    panels = max(_BLOCK // (rows * depth * kernels.COLUMNS), 1)
    tiles = max(_BLOCK // (depth * kernels.COLUMNS * kernels.ROWS), 4)
    return [
        (part, piece)
        for part in parallel.pieces(rows, tiles * kernels.ROWS)
        for piece in parallel.pieces(columns, panels * kernels.COLUMNS)
    ]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the elements that windows read are laid out, flat: channel, phase, line, place.

    The padded image is taken apart by strides: the elements that a kernel position reads for
    neighbouring outputs are then neighbours themselves. `phases` are those that any position
    reads, `cells` the sizes of each. `places` has where each position reads
    for the first output, within a channel of `size` elements.
    """

    phases: tuple[tuple[int, ...], ...]
    cells: tuple[int, ...]
    places: tuple[int, ...]
    size: int
    count: int
    grid: int
    width: int

    def offsets(self, channels: int) -> Array:
        """Where each channel and kernel position reads for the first output."""
        starts = np.arange(channels, dtype=np.int64)[:, None] * self.size
        return (starts + np.array(self.places, np.int64)).reshape(-1)


def _layout(window: Window) -> Layout:
    strides, spread = window.strides, window.dilations
    reach = [(n - 1) * s + e for n, s, e in zip(window.out, strides, window.extent, strict=True)]
    cells = tuple(-(-n // s) for n, s in zip(reach, strides, strict=True))
    steps = [int(np.prod(cells[i + 1 :])) for i in range(len(cells))]
    moved = [
        [divmod(p * d, s) for p, d, s in zip(position, spread, strides, strict=True)]
        for position in np.ndindex(*window.kernel)
    ]
    phases = sorted({tuple(part for _, part in where) for where in moved})
    plane = int(np.prod(cells))
    places = tuple(
        phases.index(tuple(part for _, part in where)) * plane
        + sum(whole * step for (whole, _), step in zip(where, steps, strict=True))
        for where in moved
    )
    count = sum((n - 1) * step for n, step in zip(window.out, steps, strict=True)) + 1
    grid, width = cells[-1], window.out[-1]
    if grid == width:  # nothing lies between the lines
        grid = width = window.pixels
    return Layout(tuple(phases), cells, places, len(phases) * plane, count, grid, width)


def _source(x: Array, window: Window, layout: Layout) -> Array:
    """The images in the layout; a stretch is left free at the end for those who read on."""
    if window.pointwise:
        return np.ascontiguousarray(x).reshape(-1)
    kernels = _kernels()
    planes = x.shape[0] * x.shape[1]
    total = planes * layout.size
    limits.allow((total,), np.float32)
    source = memory.empty((total + kernels.STRETCH,), np.float32)
    source[total:] = 0
    flat = np.ascontiguousarray(x).reshape(-1)
    axes = zip(x.shape[2:], layout.cells, window.strides, window.before, strict=True)
    geometry = np.array(list(axes), np.int64)
    phases = np.array(layout.phases, np.int64)
    if len(geometry) == 1:  # one axis is an image of one line
        geometry = np.concatenate([[[1, 1, 1, 0]], geometry])
        phases = np.concatenate([np.zeros_like(phases), phases], axis=1)
    parts = parallel.pieces(planes, max(parallel.BLOCK // layout.size, 1))

    def block(index: int) -> None:
        part = parts[index]
        kernels.arrange(flat, part.start, part.stop, geometry, phases, source)

    parallel.run_blocks(len(parts), block)
    return source


def _left(matrix: Array) -> Array:
    """The rows flat, filled up to whole tiles."""
    tile = _kernels().ROWS
    rows, depth = matrix.shape
    missing = -rows % tile
    if not missing:
        return np.ascontiguousarray(matrix).reshape(-1)
    made = np.zeros((rows + missing, depth), np.float32)
    made[:rows] = matrix
    return made.reshape(-1)


@cache
def _kernels() -> ModuleType:
    """The compiled kernels: the first import compiles them, and numba keeps them on disk."""
    announce = _ANNOUNCE.get()
    what = "loading the compiled kernels (the first time they are compiled)"
    if announce is not None:
        announce(0, 1, what)
    from tracer.interpreter.kernels import gemm

    if announce is not None:
        announce(1, 1, what)
    return gemm
