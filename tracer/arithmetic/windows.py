"""Convolutions as products of matrices: filters, and patches of images.

Term `c * V + v` is channel c of a group at position v of a window of V positions, term K the bias,
and term K + 1 the element of the residual input. What a window reads beyond the input counts as 0:
a product of +0 is added, which changes no sum of finite numbers, where a runtime may skip it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.arithmetic.regions import replay_regions
from tracer.arithmetic.sums import Operands
from tracer.interpreter.numeric.windows import Window, padded, patches, window
from tracer.support.types import Array

_TILE = 1 << 19
"""Elements of a matrix of patches, 2 MB: larger ones cost more in pages than they save."""


def slide(x: Sequence[int], w: Sequence[int], attributes: Mapping[str, Any]) -> Window:
    """Returns the windows of a convolution of these shapes."""
    strides, pads, dilations = (attributes.get(n) for n in ("strides", "pads", "dilations"))
    auto_pad = attributes.get("auto_pad", "NOTSET")
    return window(x[2:], w[2:], strides, pads, dilations, auto_pad)


@dataclass(frozen=True)
class Convolution:
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
    def filters(self) -> Array:
        """The filters of each group, with their bias: (G, M / G, K + 1)."""
        bias = np.zeros(len(self.w), np.float32) if self.bias is None else self.bias
        flat = np.concatenate([self.w.reshape(len(self.w), -1), bias[:, None]], axis=1)
        return flat.reshape(self.group, -1, self.terms + 1)

    def by_group(self, values: Array) -> Array:
        """Returns values (N, M, *out) as (N, G, M / G, pixels)."""
        return values.reshape(len(self.x), self.group, -1, self.slid.pixels)

    def at(self, pixel: int) -> Operands:
        """Returns the operands at one pixel of all images: the columns are these."""
        view = patches(padded(self.x, self.slid), self.slid)
        index: Any = ..., *np.unravel_index(pixel, self.slid.out)
        columns = view[index].reshape(len(self.x), self.group, self.terms).transpose(1, 2, 0)
        residual = None
        if self.residual is not None:
            residual = self.by_group(self.residual)[..., pixel].transpose(1, 2, 0)
        ones = np.ones((self.group, 1, len(self.x)), np.float32)
        return Operands(self.filters, np.concatenate([columns, ones], axis=1), residual)

    def compute(self, facts: Mapping[str, Any]) -> Array:
        """Returns the sums (N, M, *out), by filter and pixel as `replay_regions` computes them."""
        slid, filters = self.slid, self.filters
        out = np.empty((len(self.x), *filters.shape[:2], slid.pixels), np.float32)
        line = slid.pixels // slid.out[0]
        rows = max(1, _TILE // (self.group * (self.terms + 1) * line))
        for image in range(len(self.x)):
            for top in range(0, slid.out[0], rows):
                lines = slice(top, min(top + rows, slid.out[0]))
                part = image, ..., slice(lines.start * line, lines.stop * line)
                residual = None if self.residual is None else self.by_group(self.residual)[part]
                operands = Operands(filters, self._columns(image, lines), residual)
                out[part] = replay_regions(facts, operands, part[2].start)
        return out.reshape(len(self.x), len(self.w), *slid.out)

    def _columns(self, image: int, rows: slice) -> Array:
        """Returns the patches (G, K + 1, pixels) of rows of windows; the bias has 1."""
        slid, count = self.slid, rows.stop - rows.start
        view = patches(padded(self.x[image : image + 1], slid, rows=rows), slid, count)[0]
        b = np.empty((self.group, self.terms + 1, count * math.prod(slid.out[1:])), np.float32)
        b[:, -1] = 1
        shape = self.group, len(view) // self.group, *slid.kernel, count, *slid.out[1:]
        b[:, :-1].reshape(shape, copy=False)[:] = view.reshape(shape)
        return b
