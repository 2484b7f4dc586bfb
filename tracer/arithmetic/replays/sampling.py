"""GridSample: places, weights and sums of neighbours in float32, in their order.

Source: onnxruntime's `core/providers/cpu/tensor/grid_sample.cc`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from tracer.arithmetic.kernel import Facts, Inputs, Kernel, Rule
from tracer.arithmetic.replays import of_floats
from tracer.arithmetic.replays.resizing import cubic_weights
from tracer.support.types import Array

_F = np.float32
_IMAGES = 4
"""Axes of a batch of images."""
_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_TEXTS = {
    "moved": "moved, places in float32",
    "weights": "weights of neighbours multiplied before, their products one after the other",
    "rows": "neighbours of a row, then rows",
    "cubic": "4 numbers of a row one after the other, then 4 rows",
}


@dataclass(frozen=True)
class _Image:
    """Images (N, C, *sizes), and how a number beyond their ends is found."""

    values: Array
    padding: str
    is_aligned: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.values.shape[2:]

    def places(self, grid: Array) -> list[Array]:
        """Returns where the grid (N, P, axes) points to along each axis (N, P), in pixels."""
        one = _F(1)
        return [
            (grid[..., -1 - axis] + one) / _F(2) * _F(size - 1) if self.is_aligned
            else ((grid[..., -1 - axis] + one) * _F(size) - one) / _F(2)
            for axis, size in enumerate(self.sizes)
        ]  # fmt: skip

    def numbers(self, *indices: Array) -> Array:
        """Returns the numbers (N, C, P) at indices (N, P) along each axis."""
        inside = np.ones(indices[0].shape, bool)
        flat = np.zeros(indices[0].shape, np.int64)
        for index, size in zip(indices, self.sizes, strict=True):
            if self.padding == "reflection":
                index = self.reflect(index.astype(_F), size).astype(np.int64)
            held = np.clip(index, 0, size - 1)
            inside &= (held == index) | (self.padding != "zeros")
            flat = flat * size + held
        rows = self.values.reshape(*self.values.shape[:2], -1)
        found = np.take_along_axis(rows, flat[:, None], 2)
        return np.where(inside[:, None], found, _F(0))

    def reflect(self, index: Array, size: int) -> Array:
        """Returns indices beyond an end as a mirror has them, float32."""
        low, high = (_F(0), _F(size - 1)) if self.is_aligned else (_F(-0.5), _F(size - 0.5))
        beyond = np.where(index < low, low - index, index - high)
        turns = np.trunc(beyond / (high - low))
        rest = beyond - turns * (high - low)
        from_low = (index < low) == (turns % 2 == 0)
        turned = np.where(from_low, low + rest, high - rest)
        return np.where((index < low) | (index > high), turned, index)


def blend_corners(image: _Image, places: list[Array], is_by_rows: bool) -> Array:
    """Returns sums (N, C, P) of the neighbours of places, on all sides of each."""
    low = [np.floor(place).astype(np.int64) for place in places]
    ends = [
        [(index + 1, place - index.astype(_F)), (index, (index + 1).astype(_F) - place)][::-1]
        for index, place in zip(low, places, strict=True)
    ]

    def fold(*corner: Array) -> Array:
        if len(corner) == len(ends):
            return image.numbers(*corner)
        near, far = (w[:, None] * fold(*corner, index) for index, w in ends[len(corner)])
        return np.asarray(near + far)

    if is_by_rows:
        return fold()
    terms = []
    for corner in product(*ends):
        indices, weights = zip(*corner, strict=True)
        terms.append(reduce(np.multiply, weights)[:, None] * image.numbers(*indices))
    return np.asarray(reduce(np.add, terms))


def blend_rows(image: _Image, places: list[Array]) -> Array:
    """Returns cubic sums (N, C, P) of 4 by 4 neighbours of places."""
    first = [np.floor(place).astype(np.int64) - 1 for place in places]
    weights = [
        [w[:, None] for w in cubic_weights(np.abs(place - index.astype(_F) - _F(1)), _F(-0.75))]
        for index, place in zip(first, places, strict=True)
    ]
    rows = []
    for h, across in enumerate(weights[0]):
        row = [w * image.numbers(first[0] + h, first[1] + k) for k, w in enumerate(weights[1])]
        rows.append(across * reduce(np.add, row))
    return np.asarray(reduce(np.add, rows))


def _usual_way(kernel: Kernel) -> str:
    """Returns how the sums are usual: weights are multiplied before for plain images."""
    attributes = kernel.attributes
    mode = attributes.get("mode", "linear")
    if _MODES.get(mode, mode) != "linear":
        return "moved" if mode == "nearest" else "cubic"
    is_plain = attributes.get("padding_mode", "zeros") == "zeros"
    is_plain = is_plain and not attributes.get("align_corners", 0)
    return "weights" if is_plain and len(kernel.shape(0) or ()) == _IMAGES else "rows"


class _GridSample:
    """The usual way follows from the attributes: it is no fact, in which kernels could differ."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        way = _usual_way(kernel)
        yield Rule(_TEXTS[way])
        if way == "weights":  # of releases before
            yield Rule(_TEXTS["rows"], {"way": "rows"})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x, grid = kernel.values(inputs)
        attributes, way = kernel.attributes, facts.get("way", _usual_way(kernel))
        padding = attributes.get("padding_mode", "zeros")
        image = _Image(x, padding, bool(attributes.get("align_corners", 0)))
        places = image.places(grid.reshape(len(grid), -1, grid.shape[-1]))
        if way == "moved":
            out = image.numbers(*(np.rint(place).astype(np.int64) for place in places))
        elif way == "cubic":
            out = blend_rows(image, places)
        else:
            out = blend_corners(image, places, way == "rows")
        return [out.reshape(*x.shape[:2], *grid.shape[1:-1])]


REPLAYS = of_floats({"GridSample": _GridSample()})
