"""Sums of convolutions by their rule: each is a program over a window, the bias and a residual.

Term `c * V + v` is channel c of a group at position v of a window of V positions, term K the bias,
and term K + 1 the element of the residual input. What a window reads beyond the input counts as 0:
a product of +0 is added, which changes no sum of finite numbers, where a runtime may skip it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tracer.arithmetic import trees
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.windows import Window, padded, patches, window
from tracer.support.types import Array

_TILE = 1 << 19
"""Elements of a matrix of patches, 2 MB: larger ones cost more in pages than they save."""
_BLOCK = 1 << 22
"""Products that one thread computes at a time: half a millisecond."""
_NOTHING = np.empty((0, 0, 0), np.float32)


@dataclass(frozen=True)
class Operands:
    """What a convolution takes, laid out as ONNX says: `x` (N, C, *size), `bias` (M).

    `w` is (M, C / group, *kernel). `bias` and `residual` (N, M, *out) may be left out.
    """

    x: Array
    w: Array
    bias: Array | None
    residual: Array | None
    slid: Window
    group: int

    @property
    def terms(self) -> int:
        """The number of products in a sum."""
        return math.prod(self.w.shape[1:])

    @property
    def places(self) -> int:
        """The positions of the output that orders may depend on; filters, where there is one."""
        return self.slid.pixels if self.slid.pixels > 1 else len(self.w) // self.group


def slide(x: Sequence[int], w: Sequence[int], attributes: Mapping[str, Any]) -> Window:
    """Returns the windows of a convolution of these shapes."""
    strides, pads, dilations = (attributes.get(n) for n in ("strides", "pads", "dilations"))
    auto_pad = attributes.get("auto_pad", "NOTSET")
    return window(x[2:], w[2:], strides, pads, dilations, auto_pad)


def convolve(facts: Mapping[str, Any], given: Operands) -> Array:
    """Returns the sums (N, M, *out) in the order that the facts tell.

    `orders` are programs, each with `fused` and `from_zero` as in `tracer.arithmetic.sums`.
    `ranges` tells which of them positions have, or filters where there is one position: pairs of
    an order and the place that it ends before.
    """
    slid, groups, images = given.slid, given.group, len(given.x)
    maps = len(given.w) // groups
    bias = np.zeros(len(given.w), np.float32) if given.bias is None else given.bias
    weights = given.w.reshape(groups, maps, given.terms)
    a = np.concatenate([weights, bias.reshape(groups, maps, 1)], axis=2)
    out = np.empty((images, groups, maps, slid.pixels), np.float32)
    z = None if given.residual is None else given.residual.reshape(out.shape)
    line = slid.pixels // slid.out[0]
    rows = max(1, _TILE // (groups * (given.terms + 1) * line))
    for image in range(images):
        for top in range(0, slid.out[0], rows):
            part = slice(top, min(top + rows, slid.out[0]))
            b = _columns(given.x[image : image + 1], slid, groups, part)
            first = top * line
            for filters, positions, number in _pieces(facts["ranges"], out.shape[2:]):
                low, high = max(positions.start, first), min(positions.stop, first + b.shape[2])
                if low < high:
                    where = image, slice(None), filters, slice(low, high)
                    columns = b[:, :, low - first : high - first]
                    residual = None if z is None else z[where]
                    out[where] = _sums(facts["orders"][number], a[:, filters], columns, residual)
    return out.reshape(images, len(given.w), *slid.out)


def _sums(order: Mapping[str, Any], a: Array, b: Array, z: Array | None) -> Array:
    """Returns the sums (G, M, N) of `a` (G, M, K), `b` (G, K, N) and a residual `z` in an order."""
    out = np.empty((*a.shape[:2], b.shape[2]), np.float32)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    program, depth = _compact(tuple(order["program"]))
    way = bool(order["fused"]), bool(order["from_zero"])
    is_grouped = len(a) > 1
    products = a[0].size * b.shape[2] if is_grouped else b[0].size
    parts = parallel.pieces(len(a) if is_grouped else a.shape[1], max(1, _BLOCK // products))

    def work(index: int) -> None:
        part = (parts[index],) if is_grouped else (slice(None), parts[index])
        loaded("windows", "tracer.arithmetic.kernels").convolve(
            program, depth, way, a[part], b[parts[index]] if is_grouped else b,
            _NOTHING if z is None else np.ascontiguousarray(z[part]), out[part],
        )  # fmt: skip

    parallel.run_blocks(len(parts), work)
    return out


@lru_cache(maxsize=64)
def _compact(program: tuple[int, ...]) -> tuple[Array, int]:
    return np.array(program, np.int64), trees.registers(list(program))


def _columns(image: Array, slid: Window, groups: int, rows: slice) -> Array:
    """Returns the patches (G, K + 1, pixels) of rows of windows; the last term, the bias', is 1."""
    count = rows.stop - rows.start
    view = patches(padded(image, slid, rows=rows), slid, count)[0]
    channels, pixels = len(view) // groups, count * math.prod(slid.out[1:])
    volume = math.prod(slid.kernel)
    b = np.empty((groups, channels * volume + 1, pixels), np.float32)
    b[:, -1] = 1
    shape = (groups, channels, *slid.kernel, count, *slid.out[1:])
    b[:, :-1].reshape(shape, copy=False)[:] = view.reshape(shape)
    return b


def _pieces(
    ranges: Sequence[Sequence[int]], shape: Sequence[int]
) -> Iterator[tuple[slice, slice, int]]:
    """Yields filters, positions and order of each range of an output of `shape`, these two."""
    start = 0
    for number, stop in ranges:
        filters, positions = slice(0, shape[0]), slice(start, stop)
        yield (filters, positions, number) if shape[1] > 1 else (positions, slice(0, 1), number)
        start = stop
