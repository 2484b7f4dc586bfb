"""Resize, Upsample and GridSample: each output is a weighted sum of neighbouring inputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.tensors import flat, nonnegative_axes
from tracer.interpreter.operators import Ints, operator, parameters_of
from tracer.support.types import Array

_ASYMMETRIC = "asymmetric"
_BY_SCALE = "ceil where smaller, else floor"
"""What `nearest` means before opset 11, by the cases that ONNX had for it."""
_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda where: np.ceil(where - 0.5),
    "round_prefer_ceil": lambda where: np.floor(where + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""The pixel of each position, by `nearest_mode`."""
_CUBIC_A = -0.75
"""The constant of Keys' cubic kernel that the operator's description names."""
_FARTHEST = 2.0**62
"""Pixels whose numbers are beyond are no integers of 64 bits with their neighbours."""
_TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Pixels that contribute, counted from the one below the position."""


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """One axis: input and output size, scale, region of interest."""

    size: int
    out: int
    scale: float
    start: float
    end: float

    def sources(self, coordinates: str) -> Array:
        """Returns the input coordinate of each output."""
        x = np.arange(self.out, dtype=np.float64)
        width = self.scale * self.size
        centred = (x + 0.5) / self.scale - 0.5
        if coordinates == "half_pixel":
            return centred
        if coordinates == "tf_half_pixel_for_nn":  # of opset 11 alone
            return (x + 0.5) / self.scale
        if coordinates == "pytorch_half_pixel":
            return centred if self.out > 1 else np.zeros_like(x)
        if coordinates == "half_pixel_symmetric":
            return self.size / 2 * (1 - self.out / width) + centred
        if coordinates == _ASYMMETRIC:
            return x / self.scale
        if coordinates == "align_corners":
            return x * (self.size - 1) / (width - 1) if width != 1 else np.zeros_like(x)
        if coordinates == "tf_crop_and_resize":
            span = (self.end - self.start) * (self.size - 1)
            inside = x * span / (width - 1) if width != 1 else np.full_like(x, span / 2)
            return inside + self.start * (self.size - 1)
        raise ModelError(f"coordinate_transformation_mode '{coordinates}' is not supported")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeMethod:
    """The attributes of Resize that determine indices and weights."""

    antialias: int = 0
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"


@operator("Resize", since=11)
@parameters_of(ResizeMethod)
def resize(
    X: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None,
    *, axes: Ints = None, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", **attributes: Any,
) -> Array:  # fmt: skip
    """Resizes X by scales or to sizes of its axes."""
    method = ResizeMethod(**attributes)
    dims = nonnegative_axes(axes, X.ndim)
    sources = [X.shape[dim] for dim in dims]
    factors, out = resized_sizes(sources, scales, sizes, keep_aspect_ratio_policy)
    if min(factors, default=1) <= 0:
        raise ModelError(f"scales {factors} are not all above 0")
    region = [0.0] * len(dims) + [1.0] * len(dims)
    if roi is not None and roi.size:
        region = [float(v) for v in roi]
    resized_axes = [
        ResizedAxis(n, o, s, region[i], region[len(dims) + i])
        for i, (n, o, s) in enumerate(zip(sources, out, factors, strict=True))
    ]
    shape = list(X.shape)
    for dim, axis in zip(dims, resized_axes, strict=True):
        shape[dim] = axis.out
    limits.allow(shape, X.dtype)
    if 0 in shape:
        return np.empty(shape, X.dtype)
    resized, outside = X, np.zeros(shape, np.bool_)
    if X.dtype.kind != "f":
        resized = X.astype(np.float64)
    crop = method.coordinate_transformation_mode == "tf_crop_and_resize"
    for dim, axis in zip(dims, resized_axes, strict=True):
        if axis.size == axis.out and axis.scale == 1 and not (crop and roi is not None):
            continue
        where = axis.sources(method.coordinate_transformation_mode)
        resized = _along(resized, dim, axis, where, method)
        if crop:
            beyond = (where < 0) | (where > axis.size - 1)
            outside |= beyond.reshape([-1 if i == dim else 1 for i in range(X.ndim)])
    if crop:
        resized = np.where(outside, np.array(extrapolation_value, resized.dtype), resized)
    if X.dtype.kind not in "iu":
        return resized.astype(X.dtype, copy=False)
    info = ml_dtypes.iinfo(X.dtype)  # type: ignore[no-untyped-call]
    return np.clip(np.rint(resized), info.min, info.max).astype(X.dtype)


@operator("Resize", since=10)
@operator("Upsample", since=9)
def resize_10(X: Array, scales: Array, *, mode: str = "nearest") -> Array:
    """Resize of opset 10 and Upsample of opset 9: scales, and two modes."""
    known = "linear" if mode == "bilinear" else mode
    return resize(
        X, None, scales, mode=known, nearest_mode=_BY_SCALE,
        coordinate_transformation_mode=_ASYMMETRIC,
    )  # fmt: skip


@operator("Upsample", since=7)
def upsample_7(X: Array, *, mode: str = "nearest", scales: Sequence[float]) -> Array:
    """Upsample of opset 7: scales are an attribute."""
    return resize_10(X, np.array(scales, np.float32), mode=mode)


@operator("Upsample")
def upsample_1(
    X: Array, *, height_scale: float, mode: str = "nearest", width_scale: float
) -> Array:
    """Upsample before opset 7: scales of height and width."""
    return upsample_7(X, mode=mode, scales=[1, 1, height_scale, width_scale])


def resized_sizes(
    sources: Sequence[int], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[float], list[int]]:
    """Returns the scale and the size of each axis after it is resized.

    Raises ModelError if neither `scales` nor `sizes` tells them.
    """
    if scales is not None and scales.size:
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = scales.astype(np.float32) * np.array(sources, np.float32)
        if not np.isfinite(lengths).all():
            raise ModelError(f"the scales {scales.tolist()} give no finite size")
        return scales.astype(float).tolist(), [int(length) for length in lengths]
    if sizes is not None and sizes.size:
        out = sizes.tolist()
        factors = [size / n if n or size else 1.0 for size, n in zip(out, sources, strict=True)]
        if policy == "stretch":
            return factors, out
        choices: dict[str, Callable[[list[float]], float]] = {"not_larger": min, "not_smaller": max}
        if policy not in choices:
            raise ModelError(f"keep_aspect_ratio_policy '{policy}' is not supported")
        scale = choices[policy](factors)
        return [scale] * len(sources), [int(scale * n + 0.5) for n in sources]
    raise ModelError("both scales and sizes are missing")


def _along(x: Array, dim: int, axis: ResizedAxis, where: Array, method: ResizeMethod) -> Array:
    """Sums weighted neighbours along one axis; beyond it the edge repeats, or weighs 0."""
    if method.mode == "nearest":
        if method.antialias:
            raise ModelError("antialias does not go with mode 'nearest'")
        rule = method.nearest_mode
        if rule == _BY_SCALE:
            rule = "ceil" if axis.scale < 1 else "floor"
        if rule not in _NEAREST:
            raise ModelError(f"nearest_mode '{rule}' is not one of {', '.join(_NEAREST)}")
        index = np.clip(_NEAREST[rule](where), 0, axis.size - 1)
        return np.take(x, index.astype(np.intp), axis=dim)
    index, weights = _neighbours(where, axis, method)
    if method.exclude_outside:
        weights = np.where((index < 0) | (index >= axis.size), 0, weights)
        weights = weights / weights.sum(axis=1, keepdims=True)
    index = np.clip(index, 0, axis.size - 1)
    shape = [-1 if i == dim else 1 for i in range(x.ndim)]
    terms = (
        np.take(x, index[:, k], axis=dim) * weights[:, k].astype(x.dtype).reshape(shape)
        for k in range(index.shape[1])
    )
    total = next(terms)
    for term in terms:
        total += term
    return total


def _neighbours(where: Array, axis: ResizedAxis, method: ResizeMethod) -> tuple[Array, Array]:
    """Returns indices and weights (out, neighbours) of the inputs of each output."""
    kernels: dict[str, tuple[int, Callable[[Array], Array]]] = {
        "linear": (1, lambda d: np.clip(1 - d, 0, 1)),
        "cubic": (2, lambda d: cubic(d, method.cubic_coeff_a)),
    }
    if method.mode not in kernels:
        raise ModelError(f"mode '{method.mode}' is not one of nearest, {', '.join(kernels)}")
    reach, kernel = kernels[method.mode]
    scale = min(axis.scale, 1.0) if method.antialias else 1.0
    first = int(np.floor(-reach / scale)) + 1
    limits.allow((axis.out, 2 - 2 * first), np.float64)
    floor = np.floor(where)
    offsets = np.arange(first, 2 - first)
    weights = kernel(np.absolute(offsets - (where - floor)[:, None]) * scale)
    if method.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return (floor[:, None] + offsets).astype(np.int64), weights


def cubic(d: Array, a: float) -> Array:
    """The cubic convolution kernel (Keys, 1981) at distance d."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@operator("GridSample", since=20)
def grid_sample(
    X: Array, grid: Array,
    *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros",
) -> Array:  # fmt: skip
    """Interpolates X (N, C, d1 … dr) at the positions `grid` (N, D1 … Dr, r), from -1 to 1.

    The last number of a position is along the last axis of X. Raises ModelError for an unknown
    mode.
    """
    for what, word, allowed in (
        ("mode", mode, tuple(_TAPS)),
        ("padding_mode", padding_mode, ("zeros", "border", "reflection")),
    ):
        if word not in allowed:
            raise ModelError(f"{what} '{word}' is not one of {', '.join(allowed)}")
    sizes = X.shape[2:]
    shape = (*X.shape[:2], *grid.shape[1:-1])
    limits.allow(shape, X.dtype)
    places = flat(grid[..., ::-1].astype(np.float64), 1, -1)
    axes = [
        _taps(_pixels(places[..., i], size, align_corners, mode, padding_mode), size,
              align_corners, mode, padding_mode)
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    total = np.zeros((len(X), places.shape[1], X.shape[1]))
    images = np.arange(len(X))[:, None]
    channels_last = np.moveaxis(X, 1, -1)
    for taps in product(*axes):
        weight = np.prod([weights for _, weights in taps], axis=0)
        total += weight[..., None] * channels_last[images, *(index for index, _ in taps)]
    sampled = np.moveaxis(total, -1, 1).reshape(shape)
    return (np.rint(sampled) if X.dtype.kind in "iu" else sampled).astype(X.dtype)


@operator("GridSample", since=16)
@parameters_of(grid_sample)
def grid_sample_16(X: Array, grid: Array, *, mode: str = "bilinear", **attributes: Any) -> Array:
    """GridSample before opset 20: images of two dimensions, and other names of the modes."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    return grid_sample(X, grid, mode=names.get(mode, mode), **attributes)


def _pixels(places: Array, size: int, align_corners: int, mode: str, padding_mode: str) -> Array:
    """Returns positions from -1 to 1 in pixels; positions outside are moved inside by padding.

    The cubic kernel pads its pixels instead, as torch and onnxruntime do. NaN and what is too far
    away are at -1, as in onnxruntime.
    """
    pixels = (places + 1) / 2 * (size - 1) if align_corners else ((places + 1) * size - 1) / 2
    pixels = np.where(np.abs(pixels) < _FARTHEST, pixels, 0 if align_corners else -0.5)
    if padding_mode == "zeros" or mode == "cubic":
        return pixels
    if padding_mode == "reflection":
        pixels = _reflected(pixels, size, align_corners)
    return np.clip(pixels, 0, size - 1)


def _taps(
    pixels: Array, size: int, align_corners: int, mode: str, padding_mode: str
) -> list[tuple[Array, Array]]:
    """Returns the index, within the image, and the weight of each contributing pixel."""
    floor = np.rint(pixels) if mode == "nearest" else np.floor(pixels)
    offset = pixels - floor
    taps = []
    for step in _TAPS[mode]:
        index, distance = floor + step, np.abs(offset - step)
        weight = np.ones_like(offset)
        if mode != "nearest":
            weight = 1 - distance if mode == "linear" else cubic(distance, _CUBIC_A)
        if padding_mode == "zeros":
            weight = np.where((index < 0) | (index > size - 1), 0, weight)
        elif padding_mode == "reflection":
            index = _reflected(index, size, align_corners)
        taps.append((np.clip(index, 0, size - 1).astype(np.intp), weight))
    return taps


def _reflected(pixels: Array, size: int, align_corners: int) -> Array:
    """Returns positions mirrored at the outer pixels' centres (`align_corners`) or edges."""
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    span = high - low
    if not span:
        return np.full_like(pixels, low)
    folded = np.mod(pixels - low, 2 * span)
    return low + np.minimum(folded, 2 * span - folded)
