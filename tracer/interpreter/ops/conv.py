"""Conv: convolution of floats."""

import math
from collections.abc import Sequence

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import compiled_products
from tracer.interpreter.numeric.convolution import check, convolve
from tracer.interpreter.numeric.depthwise import depthwise
from tracer.interpreter.numeric.half_types import is_half
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("Conv")
def conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolves X (N, C, *size) with W (M, C / group, *kernel) and adds B (M)."""
    check(X, W, group)
    if B is not None and B.shape != W.shape[:1]:
        raise ModelError(f"a bias of shape {list(B.shape)} for {len(W)} maps")
    dtype = X.dtype
    if is_half(dtype):
        X, W = X.astype(np.float32), W.astype(np.float32)
    slid = window(X.shape[2:], W.shape[2:], strides, pads, dilations, auto_pad)
    shift = None if B is None else B.astype(X.dtype, copy=False)
    return _convolved(X, W, shift, slid, group).astype(dtype, copy=False)


def _convolved(x: Array, w: Array, bias: Array | None, slid: Window, group: int) -> Array:
    """Uses compiled kernels if the work is large enough, else numpy."""
    each = w.shape[1] == 1 and group > 1
    compiled = x.ndim <= 4 and not (each and slid.pointwise)
    depth = math.prod(w.shape[1:])
    if compiled and compiled_products.suits(
        x.dtype, len(w) // (1 if each else group), depth, len(x) * slid.pixels
    ):
        return (
            compiled_products.depthwise(x, w, slid, bias)
            if each
            else compiled_products.convolve(x, w, slid, group, bias)
        )
    result = (depthwise if each else convolve)(x, w, slid, group)
    if bias is not None:
        result += bias.reshape(-1, *[1] * (x.ndim - 2))
    return result
