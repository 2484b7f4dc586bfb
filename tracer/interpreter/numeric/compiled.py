"""What compiled kernels compute of float32: products, images, elements, rows, quantised tensors.

OpenBLAS reaches half the speed on some processors, and needs the patches as a matrix first.
`takes_...` says whether a kernel takes a case, and is worth its call.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import parallel, tensors, tile_tasks
from tracer.interpreter.numeric.windows import Window
from tracer.support.types import Array

_LEAST_PRODUCTS = 1 << 17
"""Multiplications; below, a call costs more than it saves."""
_PRODUCTS = 1 << 21
"""Multiplications of a block: about 50 us, so that threads finish a node together."""
_FEWEST = 4
"""With fewer rows or columns memory is the bound, and BLAS is faster."""
_WORTHWHILE = 1 << 13
"""Elements; below, a call costs as much as numpy's."""
_ELEMENTS = 1 << 15
"""Elements of a block: about 10 us, within the second-level cache."""
_ROW_ELEMENTS = 1 << 14
"""Elements of a block: about 10 us."""
_LEAST_QUANTIZED = 1 << 14
"""Elements; below, numpy is as fast."""
_ARRANGED = 1 << 15
"""Elements of a block: about 10 us."""
_LOADING = 1 << 32
"""Multiplications that numpy computes in the second or two in which kernels compile, at first."""
_PER_ELEMENT = 8
"""Multiplications that numpy computes in the time of one element of another operator."""
_LEFT: ContextVar[list[int] | None] = ContextVar("left", default=None)
"""Multiplications that numpy computes yet before kernels are loaded; None if none."""
_OPERATIONS = {"Add": "ADD", "Sub": "SUBTRACT", "Mul": "MULTIPLY", "Div": "DIVIDE"}
_BYTES = tuple(map(np.dtype, ("uint8", "int8")))
_FLOAT = np.dtype(np.float32)


def patience() -> list[int]:
    """Returns what `loaded_late` counts down, for any number of runs."""
    return [_LOADING]


@contextmanager
def loaded_late(left: list[int] | None) -> Iterator[None]:
    """Leaves work to numpy, within this context, until it has cost what compiling kernels costs.

    Then, or if other work has loaded them, kernels are used. None: they are used at once.
    """
    token = _LEFT.set(left)
    try:
        yield
    finally:
        _LEFT.reset(token)


def _are_worth(multiplications: int) -> bool:
    """Whether kernels are used for work that suits them."""
    left = _LEFT.get()
    if left is None or loaded.cache_info().currsize:
        return True
    left[0] -= multiplications
    return left[0] < 0


def takes_product(dtype: np.dtype[np.generic], rows: int, depth: int, columns: int) -> bool:
    """Whether the kernels suit a product of (rows, depth) and (depth, columns)."""
    large = rows * depth * columns >= _LEAST_PRODUCTS
    suits = large and dtype == np.float32 and rows >= _FEWEST and columns >= _FEWEST
    return suits and _are_worth(rows * depth * columns)


def matmul(a: Array, b: Array, out: Array) -> None:
    """Multiplies float32 or float64 matrices (N, M, K) and (N, K, P) into a contiguous (N, M, P).

    Sums begin with 0; terms are added one after the other, by fused multiply-adds where the
    processor has them.
    """
    count, rows, depth = a.shape
    wide = b.shape[2]
    if b.shape[1] != depth:  # the kernels do not check
        raise ModelError(
            f"matrices of {[rows, depth]} and {list(b.shape[1:])} cannot be multiplied"
        )
    columns = tile_tasks.Columns(
        np.ascontiguousarray(b).reshape(-1), np.arange(depth, dtype=np.int64) * wide,
        (1, 1, wide), (0, 0, 1), (0, wide, 1), count, (depth * wide, rows * wide),
    )  # fmt: skip
    multiply(a, np.zeros((count, rows), out.dtype), columns, out)


def convolve(x: Array, weights: Array, window: Window, group: int, bias: Array | None) -> Array:
    """Convolves float32 `x` (N, C, *size) over one or two axes; adds the bias."""
    out = tensors.empty_within_limits((len(x), len(weights), *window.out), np.float32)
    maps, deep, pixels = len(weights) // group, weights.shape[1], window.pixels
    shift = np.zeros(len(weights), np.float32) if bias is None else bias
    arranged = layout(window)
    lines = pixels // arranged.width
    columns = tile_tasks.Columns(
        source(x, window, arranged), arranged.offsets(deep), (len(x), lines, arranged.width),
        (group * deep * arranged.size, arranged.grid, 1), (len(weights) * pixels, pixels, 1),
        group, (deep * arranged.size, maps * pixels),
    )  # fmt: skip
    left, begins = weights.reshape(group, maps, -1), shift.reshape(group, maps)
    multiply(left, begins, columns, out)
    return out


def multiply(left: Array, begins: Array, columns: tile_tasks.Columns, out: Array) -> None:
    """Writes sums that begin with `begins` (n, M), of factors (n, M, K) and columns, to `out`."""
    tiles = loaded("tile_code")
    store = tiles.FLOATS if out.dtype == np.float32 else tiles.DOUBLES
    tile_tasks.run(tiles.NOTHING, store, left, begins, columns, [out.reshape(-1)])


def depthwise(x: Array, weights: Array, window: Window, bias: Array | None) -> Array:
    """Convolves float32 `x` with one or several kernels per channel; adds the bias."""
    out = tensors.empty_within_limits((len(x), len(weights), *window.out), np.float32)
    arranged = layout(window)
    images, offsets = source(x, window, arranged), arranged.offsets(1)
    shift = np.zeros(len(weights), np.float32) if bias is None else np.ascontiguousarray(bias)
    planes, repeat = len(x) * len(weights), len(weights) // x.shape[1]
    each = max(_PRODUCTS // 16 // (len(offsets) * window.pixels), 1)
    parallel.share(loaded("planes").depthwise, -(-planes // each),
                (images, offsets, np.ascontiguousarray(weights), shift, out),
                (arranged.size, repeat, planes, each, arranged.count, arranged.grid, arranged.width,
                 window.pixels))  # fmt: skip
    return out


def max_pool(x: Array, window: Window) -> Array:
    """Returns the maximum of each window of float32 `x` (N, C, *size); NaN is the largest."""
    out = tensors.empty_within_limits((*x.shape[:2], *window.out), np.float32)
    adjacent = window.kernel == window.strides == (2, 2) and window.dilations == (1, 1)
    inside = all(2 * n <= size for n, size in zip(window.out, x.shape[2:], strict=True))
    if adjacent and inside and not any(window.before):
        kernel, source_images = loaded("planes").halve, np.ascontiguousarray(x)
        parts = parallel.pieces(len(x), max(parallel.BLOCK * len(x) // x.size, 1))

        def block(index: int) -> None:
            part = source_images[parts[index]].reshape(-1)
            kernel(part, *x.shape[2:], *window.out, out[parts[index]].reshape(-1))

        parallel.run_blocks(len(parts), block)
        return out
    arranged = layout(window)
    images, offsets = source(x, window, arranged, -np.inf), arranged.offsets(1)
    planes = x.shape[0] * x.shape[1]
    each = max(_PRODUCTS // 16 // (len(offsets) * window.pixels), 1)
    parallel.share(loaded("planes").max_pool, -(-planes // each), (images, offsets, out),
                (arranged.size, planes, each, arranged.count, arranged.grid, arranged.width,
                 window.pixels))  # fmt: skip
    return out


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """The flat order of the elements that windows read: channel, phase, line, column.

    The padded image is split into phases by the strides, so that the elements which a kernel
    position reads for neighbouring outputs are contiguous. `phases` are those that any position
    reads, `cells` the size of each. `origins` holds, per kernel position, the index of the element
    for the first output, within a channel of `size` elements.
    """

    phases: tuple[tuple[int, ...], ...]
    cells: tuple[int, ...]
    origins: tuple[int, ...]
    size: int
    count: int
    grid: int
    width: int

    def offsets(self, channels: int) -> Array:
        """Returns the index that each channel and kernel position reads for the first output."""
        starts = np.arange(channels, dtype=np.int64)[:, None] * self.size
        return (starts + np.array(self.origins, np.int64)).reshape(-1)


@lru_cache(maxsize=1024)
def layout(window: Window) -> ImageLayout:
    """Returns the layout for windows over one or two axes; cached across runs."""
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
    origins = tuple(
        phases.index(tuple(part for _, part in where)) * plane
        + sum(whole * step for (whole, _), step in zip(where, steps, strict=True))
        for where in moved
    )
    count = sum((n - 1) * step for n, step in zip(window.out, steps, strict=True)) + 1
    grid, width = cells[-1], window.out[-1]
    if grid == width:  # no gaps between the lines
        grid = width = window.pixels
    return ImageLayout(tuple(phases), cells, origins, len(phases) * plane, count, grid, width)


def source(x: Array, window: Window, arranged: ImageLayout, fill: float = 0) -> Array:
    """Returns the images in the layout, padding filled; a stretch of zeros follows the last."""
    if window.pointwise:
        return np.ascontiguousarray(x).reshape(-1)
    planes = x.shape[0] * x.shape[1]
    total = planes * arranged.size
    limits.allow((total,), np.float32)
    out = tensors.empty((total + loaded("planes").STRETCH,), np.float32)
    out[total:] = 0
    flat = np.ascontiguousarray(x).reshape(-1)
    axes = zip(x.shape[2:], arranged.cells, window.strides, window.before, strict=True)
    geometry = np.array(list(axes), np.int64)
    phases = np.array(arranged.phases, np.int64)
    if len(geometry) == 1:  # one axis is an image of one line
        geometry = np.concatenate([[[1, 1, 1, 0]], geometry])
        phases = np.concatenate([np.zeros_like(phases), phases], axis=1)
    each = max(_ARRANGED // arranged.size, 1)
    filling = np.array([fill], np.float32)
    parallel.share(loaded("planes").arrange, -(-planes // each),
                (flat, out, geometry, phases, filling), (planes, each))  # fmt: skip
    return out


def takes_elements(x: Array) -> bool:
    """Whether `x` has channels, is float32 and large enough for the kernels."""
    return x.ndim > 1 and takes_rows(x)


def affine(x: Array, scale: Array, shift: Array) -> Array:
    """Returns float32 `x` (N, C, ...) times the scale of each channel, plus its shift."""
    out = tensors.empty(x.shape, np.float32)
    planes = x.shape[0] * x.shape[1]
    size = x.size // planes
    each = max(_ELEMENTS // size, 1)
    parallel.share(loaded("elementwise").affine, -(-planes // each),
                (np.ascontiguousarray(x), scale, shift, out), (planes, each, size))  # fmt: skip
    return out


def relu(x: Array) -> Array:
    """Returns max(x, 0) of float32 `x`."""
    out = tensors.empty(x.shape, np.float32)
    parallel.share(loaded("elementwise").relu, -(-x.size // _ELEMENTS),
                (np.ascontiguousarray(x), out), (_ELEMENTS,))  # fmt: skip
    return out


def takes_pair(a: Array, b: Array) -> bool:
    """Whether the kernels support `a` with `b` broadcast over missing leading axes."""
    if not takes_elements(a) or b.dtype != a.dtype or not a.flags.c_contiguous:
        return False
    if b.shape == a.shape:
        return b.flags.c_contiguous
    repeats = b.ndim <= a.ndim and b.size <= _ELEMENTS
    return repeats and (b.size == 1 or b.shape == a.shape[a.ndim - b.ndim :])


def binary(name: str, a: Array, b: Array) -> Array:
    """Computes Add, Sub, Mul or Div of two float32 tensors that `takes_pair` accepts."""
    kernels = loaded("elementwise")
    out = tensors.empty(a.shape, np.float32)
    each = _ELEMENTS if b.size > _ELEMENTS else _ELEMENTS // b.size * b.size
    operation = getattr(kernels, _OPERATIONS[name])
    parallel.share(kernels.binary, -(-a.size // each), (a, np.ascontiguousarray(b), out),
                (operation, each))  # fmt: skip
    return out


def ratio(
    x: Array, top: Sequence[float], bottom: Sequence[float], far: float, most: float
) -> Array:
    """Returns x P(x^2) / Q(x^2), with float32 `x` clipped to ±far and the result to ±most.

    `top` and `bottom` are the six coefficients of P and Q, highest power first.
    """
    out = tensors.empty(x.shape, np.float32)
    coefficients = np.array([*top, *bottom, far, most], np.float32)
    parallel.share(loaded("elementwise").ratio, -(-x.size // _ELEMENTS),
                (np.ascontiguousarray(x), coefficients, out), (_ELEMENTS,))  # fmt: skip
    return out


def takes_rows(x: Array) -> bool:
    """Whether `x` is float32 and large enough for the kernels."""
    suits = x.dtype == np.float32 and x.size >= _WORTHWHILE
    return suits and _are_worth(x.size * _PER_ELEMENT)


def softmax(x: Array) -> Array:
    """Returns the softmax of float32 `x` along the last axis."""
    out = tensors.empty(x.shape, np.float32)
    size = x.shape[-1]
    each = max(_ROW_ELEMENTS // size, 1)
    parallel.share(loaded("elementwise").softmax, -(-(x.size // size) // each),
                (np.ascontiguousarray(x), out), (size, each))  # fmt: skip
    return out


def normalize(x: Array, scale: Array, shift: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """Normalises rows of float32 `x`, each as long as `scale`, by their mean and deviation.

    Returns the scaled and shifted rows, and the mean and inverse deviation of each row.
    """
    out = tensors.empty(x.shape, np.float32)
    rows = x.size // scale.size
    means, inverses = (np.empty(rows, np.float32) for _ in range(2))
    each = max(_ROW_ELEMENTS // scale.size, 1)
    arrays = (x, scale, shift, np.array([epsilon], np.float32))
    parallel.share(loaded("elementwise").normalize, -(-rows // each),
                (*map(np.ascontiguousarray, arrays), out, means, inverses), (each,))  # fmt: skip
    return out, means, inverses


def takes_quantization(x: Array, scale: Array, zero: Array | None, dtype: np.dtype[Any]) -> bool:
    """Whether `x` is large, and the conversion is float32 to bytes or back with one scale."""
    convertible = dtype in _BYTES if x.dtype == _FLOAT else x.dtype in _BYTES and dtype == _FLOAT
    single = scale.size == 1 and (zero is None or zero.size == 1)
    suits = x.size >= _LEAST_QUANTIZED and convertible and single and scale.dtype == _FLOAT
    return suits and _are_worth(x.size * _PER_ELEMENT)


def quantize(x: Array, scale: Array, zero: Array | None, dtype: np.dtype[Any]) -> Array:
    """Returns round(x / scale) + zero: half to even, saturated to an 8- or 16-bit type."""
    ends = np.iinfo(dtype)
    numbers = (*_numbers(scale, zero), _FLOAT.type(ends.min), _FLOAT.type(ends.max))
    return _piecewise(loaded("elementwise").quantize, x, numbers, dtype)


def dequantize(x: Array, scale: Array, zero: Array | None) -> Array:
    """Returns (x - zero) * scale as float32."""
    return _piecewise(loaded("elementwise").dequantize, x, _numbers(scale, zero), _FLOAT)


def _numbers(scale: Array, zero: Array | None) -> tuple[Any, Any]:
    shift = 0 if zero is None else zero.reshape(())
    return scale.reshape(())[()], _FLOAT.type(shift)


def _piecewise(
    kernel: Callable[..., None], x: Array, numbers: tuple[Any, ...], dtype: np.dtype[Any]
) -> Array:
    out = tensors.empty_within_limits(x.shape, dtype)
    source, target = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    parts = parallel.pieces(out.size, parallel.BYTES_BLOCK)
    parallel.run_blocks(
        len(parts), lambda index: kernel(source[parts[index]], *numbers, target[parts[index]])
    )
    return out
