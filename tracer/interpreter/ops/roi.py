"""MaxRoiPool and RoiAlign: one number for each bin of image regions."""

from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.registry import operator
from tracer.support.types import Array


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
    X: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
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
def roi_align_10(
    X: Array,
    rois: Array,
    batch_indices: Array,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """RoiAlign before opset 16: regions are not moved by half a pixel."""
    return roi_align(
        X, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", mode=mode,
        output_height=output_height, output_width=output_width, sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )  # fmt: skip


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
