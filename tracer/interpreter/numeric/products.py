"""Products of matrices, exact for integers, and convolutions of weights and patches by products.

Both are computed in blocks on threads. The product is an argument of `convolve`, so that other
arithmetic (narrow accumulators) replaces BLAS without knowing about windows, groups or layouts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import compiled, parallel, tensors
from tracer.interpreter.numeric.windows import Window, padded, patches
from tracer.support.types import Array

Product = Callable[[Array, Array, Array], Any]
"""Writes the matrix product of (M, K) and (K, P) into (M, P); a seam for other arithmetic."""

Multiply = Callable[[Array, Array], Array]
"""Computes numpy's matmul."""
_REPLACEMENT: ContextVar[Multiply | None] = ContextVar("replacement", default=None)

_SPLIT = 1 << 23
"""Multiplications; smaller products are not split."""
_NARROWEST = 48
"""Least rows or columns of a block: BLAS is slow below."""
_BLOCKS = 8
_TILE = 1 << 18
"""Elements of a tile's columns: 1 MiB of float32, the size of a second-level cache."""
_WIDEST = 1 << 20
"""The same for another product, which has its own blocks and more overhead per call."""
_FEWEST = 4
"""With fewer tiles, threads share the product instead of the pixels."""
_DEPTHWISE_TILE = 1 << 15
"""Output elements of a block, which with its input stays in the second-level cache."""


def blas(a: Array, b: Array, out: Array) -> None:
    """Multiplies by BLAS in one call."""
    np.matmul(a, b, out=out)


def split(a: Array, b: Array, out: Array) -> None:
    """Multiplies in blocks on threads: by compiled kernels for large float32, else by BLAS."""
    (rows, depth), columns = a.shape, b.shape[1]
    if out.flags.c_contiguous and compiled.takes_product(a.dtype, rows, depth, columns):
        compiled.matmul(a[None], b[None], out[None])
        return
    if rows * depth * columns < _SPLIT:
        np.matmul(a, b, out=out)
        return
    by_rows = rows > columns
    longer = max(rows, columns)
    parts = parallel.pieces(longer, max(_NARROWEST, -(-longer // _BLOCKS)))

    def block(index: int) -> None:
        part = parts[index]
        if by_rows:
            np.matmul(a[part], b, out=out[part])
        else:
            np.matmul(a, b[:, part], out=out[:, part])

    parallel.run_blocks(len(parts), block)


@contextmanager
def replaced(multiply: Multiply) -> Iterator[None]:
    """Lets `multiply` compute what this thread asks of `matmul`: a seam for other arithmetic."""
    token = _REPLACEMENT.set(multiply)
    try:
        yield
    finally:
        _REPLACEMENT.reset(token)


def replacement() -> Product | None:
    """Returns what takes the place of BLAS in this thread, None where BLAS multiplies."""
    multiply = _REPLACEMENT.get()
    if multiply is None:
        return None

    def product(a: Array, b: Array, out: Array) -> None:
        out[...] = multiply(a, b)

    return product


def matmul(a: Array, b: Array) -> Array:
    """Computes numpy's matmul in blocks; half precision is multiplied in float32."""
    multiply = _REPLACEMENT.get()
    if multiply is not None:
        return multiply(a, b)
    if tensors.is_half(a.dtype):
        return matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    if a.ndim < 2 or b.ndim < 2 or a.dtype.kind not in "f":
        return np.matmul(a, b)
    batch = a.shape[:-2] if b.ndim == 2 else np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    out = tensors.empty_within_limits(shape, a.dtype)
    if b.ndim == 2:  # one product of all rows
        split(tensors.flat(a, 0, -1), b, tensors.flat(out, 0, -1))
        return out
    if out.size * a.shape[-1] < _SPLIT:
        return np.matmul(a, b, out=out)
    targets = out.reshape(-1, *shape[-2:])  # all have elements here
    lefts = np.broadcast_to(a, (*batch, *a.shape[-2:])).reshape(-1, *a.shape[-2:])
    rights = np.broadcast_to(b, (*batch, *b.shape[-2:])).reshape(-1, *b.shape[-2:])
    rows, depth = a.shape[-2:]
    if compiled.takes_product(a.dtype, rows, depth, b.shape[-1]):
        compiled.matmul(lefts, rights, targets)
        return out
    if len(targets) < 4:
        for left, right, target in zip(lefts, rights, targets, strict=True):
            split(left, right, target)
        return out

    def block(index: int) -> None:
        np.matmul(lefts[index], rights[index], out=targets[index])

    parallel.run_blocks(len(targets), block)
    return out


def integers(a: Array, b: Array, out: Array) -> None:
    """Multiplies integer matrices exactly, by float BLAS where floats are exact."""
    kind = carrier(a, b, a.shape[1])
    sums = np.empty(out.shape, kind)
    split(a.astype(kind), b.astype(kind), sums)
    out[...] = sums.astype(np.int64)


def carrier(a: Array, b: Array, depth: int) -> np.dtype[Any]:
    """Returns the fastest type with exact sums of `depth` products of integers, in any order.

    float32 holds integers up to 2^24, float64 up to 2^53.
    """
    bound = depth * _largest(a) * _largest(b)
    exact = ((1 << 24, np.float32), (1 << 53, np.float64))
    return np.dtype(next((kind for limit, kind in exact if bound <= limit), np.int64))


def _largest(array: Array) -> int:
    return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0


@dataclass(frozen=True, slots=True)
class Tile:
    """Images and output rows whose columns are computed and multiplied together."""

    images: slice
    rows: slice


class Place(NamedTuple):
    """Which product a block is of: the number of its group, and that of its first column."""

    group: int
    column: int


PlacedProduct = Callable[[Array, Array, Array, Place], Any]
"""As `Product`, and knows its place."""


def convolve(
    x: Array, weights: Array, window: Window, group: int = 1,
    *, product: PlacedProduct | None = None, fill: Any = 0, dtype: Any = None,
) -> Array:  # fmt: skip
    """Convolves `x` (N, C, *size) with `weights` (M, C / group, *kernel) into (N, M, *out).

    `product` multiplies the weights of a group, (M / group, K), with columns, (K, P): K runs over
    channels, then kernel positions in row-major order; P over images and output positions. The
    columns of all blocks of a group are numbered by image, then by output position. It is called
    from several threads. Padding has the value `fill`; `dtype` is the type of the result (default:
    the type of `x`).
    """
    check_channels(x, weights, group)
    maps = weights.shape[0]
    kind = x.dtype if dtype is None else dtype
    out = tensors.empty_within_limits((len(x), maps, *window.out), kind)
    rows = weights.reshape(group, maps // group, math.prod(weights.shape[1:]))
    deep, size = (rows.shape[2], _TILE) if product is None else (max(rows.shape[1:]), _WIDEST)
    tiles = _tiles(len(x), deep, window, size)
    work = [(tile, number) for tile in tiles for number in range(group)]
    shared = replacement() or (split if len(work) < _FEWEST else blas)

    def block(index: int) -> None:
        tile, number = work[index]
        matrix = columns(_part(x, number, group), window, tile, fill)
        images, target = tile.images, _part(out, number, group)
        is_matrix = images.stop - images.start == 1  # as the output of one image is
        if is_matrix:
            sums = tensors.flat(target[images.start], 1, target.ndim - 1)[:, _pixels(window, tile)]
        else:
            sums = np.empty((maps // group, matrix.shape[1]), kind)
        if product is None:
            shared(rows[number], matrix, sums)
        else:
            first = images.start * window.pixels + _pixels(window, tile).start
            product(rows[number], matrix, sums, Place(number, first))
        if not is_matrix:
            lines = tile.rows.stop - tile.rows.start
            shape = (len(sums), images.stop - images.start, lines, *window.out[1:])
            target[images, :, tile.rows] = sums.reshape(shape).swapaxes(0, 1)

    if product is None and shared is split:
        for index in range(len(work)):
            block(index)
    else:
        parallel.run_blocks(len(work), block)
    return out


def depthwise(x: Array, weights: Array, window: Window, group: int) -> Array:
    """Convolves `x` (N, C, *size) with `weights` (C * m, 1, *kernel) into (N, C * m, *out)."""
    maps = len(weights)
    repeat = maps // group
    out = tensors.empty_within_limits((len(x), maps, *window.out), x.dtype)
    channels = parallel.pieces(group, max(_DEPTHWISE_TILE // (window.pixels * repeat), 1))
    kernels = weights.reshape(group, repeat, len(window.positions))
    work = [(image, part) for image in range(len(x)) for part in channels]

    def block(index: int) -> None:
        image, part = work[index]
        view = patches(padded(x[image : image + 1, part], window), window)[0]
        target = out[image].reshape(group, repeat, *window.out)[part]
        product, planes = np.empty_like(target), view[:, None]
        factors = kernels[part].reshape(*kernels[part].shape, *[1] * len(window.out))
        for number, position in enumerate(window.positions):  # in row-major order
            at: Any = (slice(None), slice(None), *position)
            plane, factor = planes[at], factors[:, :, number]
            if number == 0:
                np.multiply(plane, factor, out=target)
            else:
                np.multiply(plane, factor, out=product)
                np.add(target, product, out=target)

    parallel.run_blocks(len(work), block)
    return out


def columns(x: Array, window: Window, tile: Tile, fill: Any = 0) -> Array:
    """Returns the patches of a tile as a matrix (K, P): a view of `x` where possible."""
    images = x[tile.images]
    count = tile.rows.stop - tile.rows.start
    if window.pointwise and len(images) == 1:
        return tensors.flat(images[0], 1, images[0].ndim)[:, _pixels(window, tile)]
    view = patches(padded(images, window, fill, tile.rows), window, count)
    rank = len(window.kernel)
    order = (*range(1, 2 + rank), 0, *range(2 + rank, 2 + 2 * rank))
    return tensors.flat(tensors.flat(view.transpose(order), 1 + rank, view.ndim), 0, 1 + rank)


def check_channels(x: Array, weights: Array, group: int) -> None:
    """Raises ModelError if channels, groups and weights do not fit."""
    if x.ndim != weights.ndim or x.ndim < 3:
        raise ModelError(f"an input of rank {x.ndim} and weights of rank {weights.ndim}")
    if x.shape[1] != weights.shape[1] * group or weights.shape[0] % group:
        raise ModelError(
            f"{x.shape[1]} channels in {group} groups do not fit weights {list(weights.shape)}"
        )


@lru_cache(maxsize=1024)
def _tiles(batch: int, depth: int, window: Window, size: int) -> Sequence[Tile]:
    """Returns tiles of `size` column elements: several images, or rows of one image."""
    pixels = max(size // max(depth, 1), 64)
    if window.pixels <= pixels:
        parts = parallel.pieces(batch, max(pixels // window.pixels, 1))
        return [Tile(images, slice(0, window.out[0])) for images in parts]
    per_row = window.pixels // window.out[0]
    rows = parallel.pieces(window.out[0], max(pixels // per_row, 1))
    return [Tile(slice(n, n + 1), part) for n in range(batch) for part in rows]


def _pixels(window: Window, tile: Tile) -> slice:
    per_row = window.pixels // window.out[0]
    return slice(tile.rows.start * per_row, tile.rows.stop * per_row)


def _part(array: Array, number: int, group: int) -> Array:
    size = array.shape[1] // group
    return array[:, number * size : (number + 1) * size]
