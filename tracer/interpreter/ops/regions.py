"""Regions of images: MaxRoiPool, RoiAlign, CropAndResize, and boxes by NonMaxSuppression."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.tensors import are_indices
from tracer.interpreter.operators import MICROSOFT, Arguments, operator, parameters_of, value_of
from tracer.support.types import Array

_MODES = ("bilinear", "nearest")


@operator("MaxRoiPool")
def max_roi_pool(
    X: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Array:
    """Divides regions (image, x1, y1, x2, y2) into bins; a bin outside the image is 0.

    The bins are those of R. Girshick, "Fast R-CNN" (2015), as Caffe rounds them.
    """
    shape = (len(rois), X.shape[1], *pooled_shape)
    limits.allow(shape, X.dtype)
    maxima = np.zeros(shape, X.dtype)
    corners = np.floor(rois[:, 1:] * spatial_scale + 0.5).astype(np.int64)
    for number, (left, top, right, bottom) in enumerate(corners.tolist()):
        image = X[int(rois[number, 0])]
        rows = _bins(top, bottom, pooled_shape[0], X.shape[2])
        columns = _bins(left, right, pooled_shape[1], X.shape[3])
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                part = image[:, row, column]
                if part.size:
                    maxima[number, :, i, j] = part.max(axis=(1, 2))
    return maxima


def _bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """Divides `first` to `last` into `count` bins, which may overlap, within the image."""
    width = max(last - first + 1, 1) / count
    edges = [(int(np.floor(i * width)), int(np.ceil((i + 1) * width))) for i in range(count)]
    return [
        slice(min(max(low + first, 0), size), min(max(high + first, 0), size))
        for low, high in edges
    ]


@operator("RoiAlign", since=16)
def roi_align(
    X: Array, rois: Array, batch_indices: Array,
    *, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:  # fmt: skip
    """Samples regions (x1, y1, x2, y2) of images at points between pixels; one number per bin.

    He et al., "Mask R-CNN" (2017). With `max`, the largest weighted pixel of all points counts, as
    in onnx.reference.
    """
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise ModelError(
            f"coordinate_transformation_mode '{coordinate_transformation_mode}' is not supported",
            "It is half_pixel or output_half_pixel.",
        )
    if mode not in ("avg", "max"):
        raise ModelError(f"mode '{mode}' is not supported", "It is avg or max.")
    centred = coordinate_transformation_mode == "half_pixel"
    limits.allow((len(rois), X.shape[1], output_height, output_width), X.dtype)
    aligned = np.zeros((len(rois), X.shape[1], output_height, output_width), X.dtype)
    corners = rois.astype(np.float64) * spatial_scale - (0.5 if centred else 0.0)
    for number, (left, top, right, bottom) in enumerate(corners.tolist()):
        limits.in_force().clock()
        image = X[int(batch_indices[number])]
        rows = _points(top, bottom, output_height, sampling_ratio, X.shape[2], centred)
        columns = _points(left, right, output_width, sampling_ratio, X.shape[3], centred)
        aligned[number] = _aligned(image, rows, columns, mode)
    return aligned


@operator("RoiAlign", since=10)
@parameters_of(roi_align, without=["coordinate_transformation_mode"])
def roi_align_10(*inputs: Array, **attributes: Any) -> Array:
    """RoiAlign before opset 16: regions are not moved by half a pixel."""
    return roi_align(*inputs, coordinate_transformation_mode="output_half_pixel", **attributes)


def _points(
    start: float, end: float, bins: int, ratio: int, size: int, centred: bool
) -> list[tuple[Array, Array]]:
    """Returns, for the pixel below and above each point, its index and weight (bins, points)."""
    length = end - start if centred else max(end - start, 1.0)
    count = ratio if ratio > 0 else max(int(np.ceil(length / bins)), 0)
    limits.allow((bins, count), np.float64)
    steps = (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / max(count, 1)) * (length / bins)
    places = start + steps
    inside = (places >= -1) & (places <= size)
    places = np.clip(places, 0, size - 1)
    below = np.floor(places).astype(np.intp)
    above = np.minimum(below + 1, size - 1)
    return [(below, inside * (1 - (places - below))), (above, inside * (places - below))]


def _aligned(
    image: Array, rows: list[tuple[Array, Array]], columns: list[tuple[Array, Array]], mode: str
) -> Array:
    """Returns the mean or the maximum of each bin (C, bins, bins) of an image (C, H, W)."""
    (rows_below, _), (columns_below, _) = rows[0], columns[0]
    limits.allow((*image.shape[:1], rows_below.size, columns_below.size, 8), np.float64)
    weighted = [
        image[:, y[:, None, :, None], x[None, :, None, :]]
        * (down[:, None, :, None] * across[None, :, None, :])
        for y, down in rows
        for x, across in columns
    ]
    points = weighted[0].shape[-2] * weighted[0].shape[-1]
    if mode == "avg" or not points:
        return np.asarray(sum(weighted)).sum(axis=(-2, -1)) / max(points, 1)
    return np.maximum.reduce(weighted).max(axis=(-2, -1))


def check_crops(given: Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other."""
    X, rois, batch_indices = given.X, given.rois, given.batch_indices
    if given.mode not in _MODES:
        raise ModelError(f"the mode '{given.mode}' is not one of {', '.join(_MODES)}")
    if X.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
        raise ModelError(
            f"X {list(X.shape)}, rois {list(rois.shape)} and batch_indices "
            f"{list(batch_indices.shape)} do not fit",
            "They are [batch, channels, height, width], [regions, 4] and [regions].",
        )
    if given.crop_size.shape != (2,):
        raise ModelError(f"crop_size is {list(given.crop_size.shape)}, not [2]: height and width")
    images = value_of(batch_indices)
    if images is not None and not are_indices(images, X.shape[0]):
        raise ModelError(f"batch_indices has {images.tolist()}, and there are {X.shape[0]} images")


@operator("CropAndResize", domain=MICROSOFT, check=check_crops)
def crop_and_resize(
    X: Array, rois: Array, batch_indices: Array, crop_size: Array,
    *, extrapolation_value: float = 0.0, mode: str = "bilinear",
) -> Array:  # fmt: skip
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
        top, left = np.floor(ys).astype(np.int64), np.floor(xs).astype(np.int64)
        bottom, right = np.ceil(ys).astype(np.int64), np.ceil(xs).astype(np.int64)
        down, along = (ys - top)[..., None], (xs - left)[..., None]
        upper, lower = (
            channels_last[images, row, left] * (1 - along)
            + channels_last[images, row, right] * along
            for row in (top, bottom)
        )
        values = (upper * (1 - down) + lower * down).astype(X.dtype, copy=False)
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


@operator("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Array, scores: Array, max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None, score_threshold: Array | None = None,
    *, center_point_box: int = 0,
) -> Array:  # fmt: skip
    """Batch, class and box of each box that is kept: none unless a number of boxes is given."""
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (len(scores), scores.shape[2], 4):
        raise ModelError(f"boxes {list(boxes.shape)} do not fit scores {list(scores.shape)}")
    most, iou = _single(max_output_boxes_per_class, 0), _single(iou_threshold, 0)
    least = None if score_threshold is None else _single(score_threshold, 0)
    first, second = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        ends = first - second / 2, first + second / 2
    else:
        ends = np.minimum(first, second), np.maximum(first, second)
    found = [
        (batch, group, box)
        for batch, corners in enumerate(np.concatenate(ends, axis=-1))
        for group, values in enumerate(scores[batch])
        for box in _best_boxes(corners, values, most, iou, least)
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def _best_boxes(
    boxes: Array, scores: Array, most: float, iou: float, least: float | None
) -> list[int]:
    """The boxes of one class that are kept, best first; of equal scores the first box."""
    left = np.argsort(-scores, kind="stable")
    left = left if least is None else left[scores[left] > least]
    kept: list[int] = []
    while left.size and len(kept) < most:
        best, left = int(left[0]), left[1:]
        kept.append(best)
        left = left[~_overlap(boxes[best], boxes[left], iou)]
    return kept


def _overlap(box: Array, others: Array, iou: float) -> Array:
    """Whether the intersection with a box is more than a part of the union; empty boxes are not."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.where((sides > 0).all(axis=1), sides.prod(axis=1), 0)
    area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(axis=1)
    union = area + areas - common
    is_box = (common > 0) & (area > 0) & (areas > 0) & (union > 0)
    result: Array = is_box & (common / np.where(is_box, union, 1) > iou)
    return result


def _single(value: Array | None, default: float) -> float:
    return default if value is None or not value.size else float(value.reshape(-1)[0])
