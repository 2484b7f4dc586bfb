"""Resize, Upsample and GridSample: places, weights and sums in float32, in their order.

Source: onnxruntime's `upsample.cc` and `core/providers/cpu/tensor/grid_sample.cc`. Nearest numbers
of a Resize are moved, which the interpreter does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import ROUNDED, of_floats
from tracer.support.types import Array

_F = np.float32
_HALF, _ONE = _F(0.5), _F(1)
_TAPS = range(-1, 3)
"""Numbers of a cubic sum, counted from the one below the coordinate."""


@dataclass(frozen=True)
class _Axis:
    """An axis that is resized: its place, input and output size, scale."""

    place: int
    size: int
    out: int
    scale: Any

    def sources(self, mode: str) -> Array:
        """Returns the input coordinate of each output, float32."""
        x = np.arange(self.out).astype(_F)
        if self.scale == 1:
            return x
        if mode == "asymmetric":
            return np.asarray(x / self.scale)
        if mode == "align_corners":
            return np.asarray(x * _F(self.size - 1) / _F(max(self.out - 1, 1)))
        if mode == "half_pixel" or (mode == "pytorch_half_pixel" and self.out > 1):
            return np.asarray((x + _HALF) / self.scale - _HALF)
        if mode == "pytorch_half_pixel":
            return np.zeros_like(x)
        raise NotKnown(f"coordinates {mode} are not known")

    def lines(self, x: Array, indices: Array) -> Array:
        """Returns lines of `x` across this axis; beyond an end, the last."""
        return np.take(x, np.clip(indices, 0, self.size - 1), self.place)

    def spread(self, weights: Array, rank: int) -> Array:
        """Returns weights of lines so that they multiply these."""
        return weights.reshape(-1, *[1] * (rank - 1 - self.place))


def _axes(kernel: Kernel, values: list[Any]) -> list[_Axis]:
    """Returns all axes, in their order; `values` are those of the inputs."""
    shape, attributes = kernel.shape(0), kernel.attributes
    if shape is None or attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotKnown("its sizes follow a policy")
    place = 2 if kernel.op_type == "Resize" and kernel.opsets[""] > 10 else 1
    scales = attributes.get("scales", kernel.constant(place))
    sizes = values[3] if len(values) > 3 else None
    if (scales is None or not len(scales)) and sizes is None:
        raise NotKnown("its sizes are computed")
    places = [axis % len(shape) for axis in attributes.get("axes", range(len(shape)))]
    axes = [_Axis(n, size, size, _ONE) for n, size in enumerate(shape)]
    for n, axis in enumerate(places):
        if sizes is not None:
            out, scale = int(sizes[n]), _F(sizes[n]) / _F(shape[axis])
        else:
            scale = _F(np.asarray(scales)[n])
            out = int(np.floor(_F(shape[axis]) * scale))
        axes[axis] = _Axis(axis, shape[axis], out, scale)
    return axes


def _image(axes: list[_Axis]) -> list[_Axis]:
    """Returns the axes of images: those after batch and channels; channels may be the last, too."""
    if len(axes) > 3 and axes[0].scale == axes[1].scale == 1:
        return axes[2:]
    if len(axes) == 4 and axes[0].scale == axes[3].scale == 1:
        return axes[1:3]
    return axes


def _coordinates(kernel: Kernel) -> str:
    if kernel.op_type == "Resize" and kernel.opsets[""] > 10:
        return str(kernel.attributes.get("coordinate_transformation_mode", "half_pixel"))
    return "asymmetric"


def _nearest(kernel: Kernel, x: Array, axes: list[_Axis]) -> Array:
    """Moves numbers: which is the nearest depends on the bits of the coordinate."""
    mode = kernel.attributes.get("nearest_mode", "round_prefer_floor")
    for axis in axes:
        where = axis.sources(_coordinates(kernel))
        if mode == "round_prefer_floor":
            where = np.ceil(where - _HALF)
        elif mode == "round_prefer_ceil":
            where = np.floor(where + _HALF)
        x = axis.lines(x, (np.ceil if mode == "ceil" else np.floor)(where).astype(np.int64))
    return x


def _linear(kernel: Kernel, x: Array, axes: list[_Axis]) -> Array:
    """Sums over corners, the last axis first; weights are multiplied before."""
    corners = []
    for axis in axes:
        where = np.clip(axis.sources(_coordinates(kernel)), _F(0), _F(axis.size - 1))
        low = where.astype(np.int64)
        high = np.minimum(low + 1, axis.size - 1)
        far, near = np.abs(where - low.astype(_F)), np.abs(where - high.astype(_F))
        is_last = low == high
        weights = (np.where(is_last, _HALF, each) for each in (near, far))
        corners.append([
            (line, axis.spread(weight, x.ndim))
            for line, weight in zip((low, high), weights, strict=True)
        ])  # fmt: skip
    terms = []
    for corner in product(*corners):
        part = x
        for axis, (line, _) in zip(axes, corner, strict=True):
            part = axis.lines(part, line)
        terms.append(reduce(np.multiply, [weight for _, weight in reversed(corner)]) * part)
    return np.asarray(reduce(np.add, terms))


def _cubic(kernel: Kernel, x: Array, axes: list[_Axis]) -> Array:
    """Sums 4 numbers across the last axis, then 4 sums across the one before, each from 0."""
    attributes = kernel.attributes
    a = _F(attributes.get("cubic_coeff_a", -0.75))
    skips = bool(attributes.get("exclude_outside", 0))
    for axis in axes[::-1]:
        where = axis.sources(_coordinates(kernel))
        low = np.floor(where).astype(np.int64)
        weights = cubic_weights(where - low.astype(_F), a)
        if skips:
            inside = [(low + tap >= 0) & (low + tap < axis.size) for tap in _TAPS]
            weights = [np.where(*pair, _F(0)) for pair in zip(inside, weights, strict=True)]
        total = reduce(np.add, weights, np.zeros_like(where)) if skips else np.ones_like(where)
        spread = [axis.spread(each, x.ndim) for each in (*weights, total)]
        out: Array = np.zeros(1, _F)
        for tap, weight in zip(_TAPS, spread[:-1], strict=True):
            line = axis.lines(x, low + tap)
            if axis is axes[-1]:
                out = out + weight / spread[-1] * line
            else:
                out = out + line * weight / spread[-1]
        x = out
    return x


def cubic_weights(s: Array, a: Any) -> list[Array]:
    """Returns the weights of Keys' cubic convolution at distances `s` from the number below."""

    def outer(t: Any) -> Any:
        return ((a * t - _F(5) * a) * t + _F(8) * a) * t - _F(4) * a

    def inner(t: Any) -> Any:
        return ((a + _F(2)) * t - (a + _F(3))) * t * t + _ONE

    return [outer(s + _ONE), inner(s), inner(_ONE - s), outer(_F(2) - s)]


_FOLDS = {"nearest": _nearest, "linear": _linear, "cubic": _cubic}
_TEXTS = {
    "nearest": "moved, coordinates in float32",
    "linear": "corners one after the other, weights multiplied before",
    "cubic": "4 numbers of a row one after the other, then 4 rows",
}


class _Resize:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        mode = kernel.attributes.get("mode", "nearest")
        if mode == "nearest":
            yield ROUNDED
        if kernel.attributes.get("antialias", 0) or mode not in _FOLDS:
            raise NotKnown("antialiasing is not known")
        drawn = kernel.values(kernel.draw(np.random.default_rng(0)))  # with the sizes of the graph
        if mode == "cubic" and len(_image(_axes(kernel, drawn))) != 2:
            raise NotKnown("cubic sums of other than two axes are not known")
        yield Rule(_TEXTS[mode], {"mode": mode})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if "mode" not in facts:
            return kernel.interpret(inputs)
        x, *_ = values = kernel.values(inputs)
        axes = _axes(kernel, values)
        if all(axis.out == axis.size for axis in axes):
            return [x]
        image = axes if facts["mode"] == "nearest" else _image(axes)
        return [_FOLDS[facts["mode"]](kernel, x, image)]


_IMAGES = 4
"""Axes of a batch of images."""
_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_WAYS = {
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
        return [
            (grid[..., -1 - axis] + _ONE) / _F(2) * _F(size - 1) if self.is_aligned
            else ((grid[..., -1 - axis] + _ONE) * _F(size) - _ONE) / _F(2)
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
        [w[:, None] for w in cubic_weights(np.abs(place - index.astype(_F) - _ONE), _F(-0.75))]
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
        yield Rule(_WAYS[way])
        if way == "weights":  # of releases before
            yield Rule(_WAYS["rows"], {"way": "rows"})

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


REPLAYS = of_floats({"Resize": _Resize(), "Upsample": _Resize(), "GridSample": _GridSample()})
