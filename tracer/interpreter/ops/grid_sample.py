"""GridSample: values of an image at any positions, interpolated between its pixels."""

from itertools import product

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.axes import flat
from tracer.interpreter.ops.resize import cubic
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_CUBIC_A = -0.75
"""The constant of Keys' cubic kernel that the operator's description names."""
_FARTHEST = 2.0**62
"""Pixels whose numbers are beyond are no integers of 64 bits with their neighbours."""
_TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Pixels that contribute, counted from the one below the position."""


@operator("GridSample", since=20)
def grid_sample(
    X: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
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
def grid_sample_16(
    X: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Array:
    """GridSample before opset 20: images of two dimensions, and other names of the modes."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    return grid_sample(
        X, grid, align_corners=align_corners, mode=names.get(mode, mode), padding_mode=padding_mode
    )


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
