"""CropAndResize, domain com.microsoft: regions of images, each resized to one size."""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input, value_of
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_MODES = ("bilinear", "nearest")


def check_inputs(
    X: Input, rois: Input, batch_indices: Input, crop_size: Input, *, mode: str = "bilinear"
) -> None:
    """Raises ModelError for inputs that do not fit each other."""
    if mode not in _MODES:
        raise ModelError(f"the mode '{mode}' is not one of {', '.join(_MODES)}")
    if X.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
        raise ModelError(
            f"X {list(X.shape)}, rois {list(rois.shape)} and batch_indices "
            f"{list(batch_indices.shape)} do not fit",
            "They are [batch, channels, height, width], [regions, 4] and [regions].",
        )
    if crop_size.shape != (2,):
        raise ModelError(f"crop_size is {list(crop_size.shape)}, not [2]: height and width")
    images = value_of(batch_indices)
    if images is not None and images.size and not 0 <= images.min() <= images.max() < X.shape[0]:
        raise ModelError(f"batch_indices has {images.tolist()}, and there are {X.shape[0]} images")


@operator("CropAndResize", domain=DOMAIN, check=check_inputs)
def crop_and_resize(
    X: Array,
    rois: Array,
    batch_indices: Array,
    crop_size: Array,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Array:
    """Returns [regions, channels, height, width] of `crop_size`, as TensorFlow defines it.

    A region is y1, x1, y2, x2 as shares of the image; its corners are those of the output. What
    lies outside the image has the `extrapolation_value`.
    """
    height, width = (int(size) for size in crop_size)
    limits.allow((len(rois), X.shape[1], height, width), X.dtype)
    ys = _places(rois[:, 0], rois[:, 2], height, X.shape[2])[:, :, None]
    xs = _places(rois[:, 1], rois[:, 3], width, X.shape[3])[:, None, :]
    inside = (ys >= 0) & (ys <= X.shape[2] - 1) & (xs >= 0) & (xs <= X.shape[3] - 1)
    ys, xs = (np.clip(at, 0, size - 1) for at, size in ((ys, X.shape[2]), (xs, X.shape[3])))
    images = batch_indices[:, None, None]
    channels_last = np.moveaxis(X, 1, -1)
    if mode == "nearest":
        values = channels_last[images, _nearest(ys), _nearest(xs)]
    else:
        values = _bilinear(channels_last, images, ys, xs)
    filled = np.where(inside[..., None], values, X.dtype.type(extrapolation_value))
    return np.ascontiguousarray(np.moveaxis(filled, -1, 1))


def _places(start: Array, end: Array, count: int, size: int) -> Array:
    """Returns coordinates [regions, count] in pixels, from the start of each region to its end."""
    span = np.float32(size - 1)
    if count == 1:
        return (np.float32(0.5) * (start + end) * span)[:, None]
    steps = (end - start) * span / np.float32(count - 1)
    places: Array = (start * span)[:, None] + np.arange(count, dtype=np.float32) * steps[:, None]
    places[:, -1] = end * span
    return places


def _nearest(places: Array) -> Array:
    """Rounds halves away from 0, as C does."""
    return np.floor(places + np.float32(0.5)).astype(np.int64)


def _bilinear(images: Array, chosen: Array, ys: Array, xs: Array) -> Array:
    top, left = np.floor(ys).astype(np.int64), np.floor(xs).astype(np.int64)
    bottom, right = np.ceil(ys).astype(np.int64), np.ceil(xs).astype(np.int64)
    down, along = (ys - top)[..., None], (xs - left)[..., None]
    upper, lower = (
        images[chosen, row, left] * (1 - along) + images[chosen, row, right] * along
        for row in (top, bottom)
    )
    mixed: Array = upper * (1 - down) + lower * down
    return mixed.astype(images.dtype, copy=False)
