"""MaxRoiPool: the maximum of each bin of image regions."""

from collections.abc import Sequence

import numpy as np

from tracer import limits
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
