"""Describes where the columns of a node's dot products are read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracer.accumulators.engine.node_operands import Integers
from tracer.interpreter.numeric.tile_tasks import Columns
from tracer.interpreter.numeric.windows import Window, padded
from tracer.support.types import Array

_AXES = 2
"""Spatial axes that the kernels support: lines and places."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Columns of integers that lie in `range`."""

    columns: Columns
    range: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PaddedImages:
    """Images laid out for `window`: `numbers` (N, C, lines, places), minus `shift`, padded."""

    numbers: Array
    shift: int
    window: Window
    range: tuple[int, int]

    @classmethod
    def of(cls, x: Integers, window: Window) -> PaddedImages | None:
        """The images `x` (N, C, *size); None if they have more axes."""
        if len(window.kernel) > _AXES:
            return None
        numbers = np.ascontiguousarray(padded(x.numbers, window, x.padding + x.shift))
        lines = numbers.shape[2] if numbers.ndim == 2 + _AXES else 1
        shape = (*numbers.shape[:2], lines, numbers.shape[-1])
        ends = min(x.low, x.padding), max(x.high, x.padding)
        return cls(numbers.reshape(shape), x.shift, window, ends)

    def columns(self, groups: int, maps: int) -> ColumnSource:
        """The windows over each group of channels, for sums that are written to (N, maps, *out)."""
        count, depth, lines, places = self.numbers.shape
        (down, across), (height, width) = map(_lines_first, (self.window.strides, self.window.out))
        offsets = _offsets(self.window, depth // groups, lines, places)
        columns = Columns(
            self.numbers.reshape(-1),
            offsets,
            (count, height, width),
            (depth * lines * places, down * places, across),
            (maps * height * width, height * width, 1),
            groups,
            (depth // groups * lines * places, maps // groups * height * width),
            self.shift,
        )
        return ColumnSource(columns, self.range)


@lru_cache(maxsize=256)
def _offsets(window: Window, depth: int, lines: int, places: int) -> Array:
    """Where the terms of a window lie, from its first one, in images of so many places a line."""
    (below, beside), kernel = map(_lines_first, (window.dilations, window.kernel))
    positions = np.ogrid[:depth, : kernel[0], : kernel[1]]
    offsets = (positions[0] * lines + positions[1] * below) * places + positions[2] * beside
    return offsets.reshape(-1).astype(np.int64)


def from_rows(a: Integers, width: int) -> ColumnSource:
    """The rows of `a` (..., K), for sums that are written to (..., width)."""
    depth = a.numbers.shape[-1]
    source = np.ascontiguousarray(a.numbers).reshape(-1)
    sizes = (source.size // max(depth, 1), 1, 1)
    columns = Columns(source, np.arange(depth), sizes, (depth, 0, 0), (width, 1, 0), zero=a.shift)
    return ColumnSource(columns, (a.low, a.high))


def from_matrices(b: Integers, rows: int) -> ColumnSource:
    """The columns of each matrix of `b` (N, K, P), for sums that are written to (N, rows, P)."""
    count, depth, width = b.numbers.shape
    source, offsets = np.ascontiguousarray(b.numbers).reshape(-1), np.arange(depth) * width
    columns = Columns(source, offsets, (1, 1, width), (0, 0, 1), (0, width, 1), count,
                      (depth * width, rows * width), b.shift)  # fmt: skip
    return ColumnSource(columns, (b.low, b.high))


def from_first_axis(x: Integers) -> ColumnSource:
    """The columns of `x` (K, C, P), for sums of each channel C that are written to (1, C, P)."""
    depth, channels, width = x.numbers.shape
    source, offsets = np.ascontiguousarray(x.numbers).reshape(-1), np.arange(depth)
    columns = Columns(source, offsets * channels * width, (1, 1, width), (0, 0, 1),
                      (0, width, 1), channels, (width, width), x.shift)  # fmt: skip
    return ColumnSource(columns, (x.low, x.high))


def _lines_first(values: tuple[int, ...]) -> tuple[int, int]:
    """A number for lines and one for places; one axis is an image of one line."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])
