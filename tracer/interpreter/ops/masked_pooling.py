"""MaxpoolWithMask, domain com.microsoft: the largest value of what a mask leaves of a window."""

from collections.abc import Sequence

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input
from tracer.interpreter.numeric.windows import padded, patches, window
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Ints = Sequence[int] | None


def check_inputs(X: Input, M: Input) -> None:
    """Raises ModelError for a mask that is not one map of the size of the images."""
    if X.ndim < 3 or M.ndim != X.ndim or M.shape != (1, 1, *X.shape[2:]):
        raise ModelError(
            f"the mask is {list(M.shape)}, not {[1, 1, *X.shape[2:]]}",
            "onnxruntime reads masks of several images or channels at wrong places.",
        )


@operator("MaxpoolWithMask", domain=DOMAIN, check=check_inputs)
def maxpool_with_mask(
    X: Array,
    M: Array,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Sequence[int],
    pads: _Ints = None,
    storage_order: int = 0,
    strides: _Ints = None,
) -> Array:
    """The largest value of each window; each row of a window ends where the mask is 0.

    As in onnxruntime, the first element of an image is never masked, unless it has one axis.
    Where all is masked, the result is the least float.
    """
    slid = window(X.shape[2:], kernel_shape, strides, pads, None, auto_pad)
    lowest = np.finfo(X.dtype).min
    mask = M != 0
    if X.ndim > 3:
        mask = mask.copy()
        mask[(0,) * mask.ndim] = True
    last = X.ndim - 1  # of the axes of a window, which follow image and channel
    seen = np.logical_and.accumulate(patches(padded(mask, slid, fill=True), slid), axis=last)
    values = np.where(seen, patches(padded(X, slid, fill=lowest), slid), lowest)
    largest: Array = values.max(axis=tuple(range(2, X.ndim)))
    return largest
