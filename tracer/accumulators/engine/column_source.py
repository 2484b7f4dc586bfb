"""One side of the dot products of a node: where each number is read, before it is copied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine.node_operands import Integers
from tracer.interpreter.numeric.windows import Window, padded
from tracer.support.types import Array

_AXES = 2
"""Spatial axes that the kernels know: lines and places."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns gathered from the flat, contiguous int16 `source`, whose numbers lie in `ends`.

    A column reads `offsets` (K), int64, from where it begins; columns begin `steps` apart for
    their image, line and place, of which there are `sizes`. Sum i of a column is put `apart` for
    its image, for i, and for its number in the image.
    """

    source: Array
    offsets: Array
    sizes: tuple[int, int, int]
    steps: tuple[int, int, int]
    apart: tuple[int, int, int]
    ends: tuple[int, int]

    @property
    def count(self) -> int:
        """How many there are."""
        images, lines, places = self.sizes
        return images * lines * places


@dataclass(frozen=True, slots=True)
class Images:
    """Images laid out for windows: `ready` (N, C, lines, places), int16, padded."""

    ready: Array
    slid: Window
    ends: tuple[int, int]

    @classmethod
    def of(cls, x: Integers, slid: Window) -> Images | None:
        """The images `x` (N, C, *size); None of other integers, or of more axes."""
        if len(slid.kernel) > _AXES or x.values.dtype != np.int16:
            return None
        ready = np.ascontiguousarray(padded(x.values, slid, x.nought))
        lines = ready.shape[2] if ready.ndim == 2 + _AXES else 1
        shape = (*ready.shape[:2], lines, ready.shape[-1])
        return cls(ready.reshape(shape), slid, (min(x.low, x.nought), max(x.high, x.nought)))

    def columns(self, channels: slice, maps: int) -> Columns:
        """The windows over these channels, for sums that are put into (N, maps, *out)."""
        count, deep, lines, places = self.ready.shape
        (down, across), (tall, wide) = (_two(each) for each in (self.slid.strides, self.slid.out))
        (below, beside), (high, broad) = map(_two, (self.slid.dilations, self.slid.kernel))
        each = np.ogrid[channels, :high, :broad]
        offsets = (each[0] * lines + each[1] * below) * places + each[2] * beside
        return Columns(
            self.ready.reshape(-1),
            offsets.reshape(-1).astype(np.int64),
            (count, tall, wide),
            (deep * lines * places, down * places, across),
            (maps * tall * wide, tall * wide, 1),
            self.ends,
        )


def of_rows(a: Integers, rows: Array, width: int) -> Columns | None:
    """The `rows` (R, K) of `a`, for sums that are put into (R, width); None of other integers."""
    if rows.dtype != np.int16:
        return None
    count, depth = rows.shape
    flat = np.ascontiguousarray(rows).reshape(-1)
    return Columns(flat, np.arange(depth), (1, 1, count), (0, 0, depth), (0, 1, width),
                   (a.low, a.high))  # fmt: skip


def _two(values: tuple[int, ...]) -> tuple[int, int]:
    """Of lines and places; one axis is an image of one line."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])
