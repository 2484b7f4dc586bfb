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
    """Images laid out for `window`: `values` (N, C, lines, places), integers, padded."""

    values: Array
    window: Window
    range: tuple[int, int]

    @classmethod
    def of(cls, x: Integers, window: Window) -> PaddedImages | None:
        """The images `x` (N, C, *size); None if they have more axes."""
        if len(window.kernel) > _AXES:
            return None
        values = np.ascontiguousarray(padded(x.values, window, x.padding))
        lines = values.shape[2] if values.ndim == 2 + _AXES else 1
        shape = (*values.shape[:2], lines, values.shape[-1])
        return cls(values.reshape(shape), window, (min(x.low, x.padding), max(x.high, x.padding)))

    def columns(self, groups: int, maps: int) -> ColumnSource:
        """The windows over each group of channels, for sums that are written to (N, maps, *out)."""
        count, depth, lines, places = self.values.shape
        (down, across), (height, width) = map(_lines_first, (self.window.strides, self.window.out))
        offsets = _offsets(self.window, depth // groups, lines, places)
        columns = Columns(
            self.values.reshape(-1),
            offsets,
            (count, height, width),
            (depth * lines * places, down * places, across),
            (maps * height * width, height * width, 1),
            groups,
            (depth // groups * lines * places, maps // groups * height * width),
        )
        return ColumnSource(columns, self.range)


@lru_cache(maxsize=256)
def _offsets(window: Window, depth: int, lines: int, places: int) -> Array:
    """Where the terms of a window lie, from its first one, in images of so many places a line."""
    (below, beside), kernel = map(_lines_first, (window.dilations, window.kernel))
    positions = np.ogrid[:depth, : kernel[0], : kernel[1]]
    offsets = (positions[0] * lines + positions[1] * below) * places + positions[2] * beside
    return offsets.reshape(-1).astype(np.int64)


def from_rows(a: Integers, rows: Array, width: int) -> ColumnSource:
    """The `rows` (R, K) of `a`, for sums that are written to (R, width)."""
    count, depth = rows.shape
    source = np.ascontiguousarray(rows).reshape(-1)
    columns = Columns(source, np.arange(depth), (count, 1, 1), (depth, 0, 0), (width, 1, 0))
    return ColumnSource(columns, (a.low, a.high))


def from_matrices(b: Integers, rows: int) -> ColumnSource:
    """The columns of each matrix of `b` (N, K, P), for sums that are written to (N, rows, P)."""
    count, depth, width = b.values.shape
    source, offsets = np.ascontiguousarray(b.values).reshape(-1), np.arange(depth) * width
    columns = Columns(source, offsets, (1, 1, width), (0, 0, 1), (0, width, 1), count,
                      (depth * width, rows * width))  # fmt: skip
    return ColumnSource(columns, (b.low, b.high))


def _lines_first(values: tuple[int, ...]) -> tuple[int, int]:
    """A number for lines and one for places; one axis is an image of one line."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])
