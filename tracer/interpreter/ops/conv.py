"""Conv: the convolutions of floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracer.interpreter.convolution import check, convolve
from tracer.interpreter.depthwise import depthwise
from tracer.interpreter.registry import operator
from tracer.interpreter.values import Array
from tracer.interpreter.windows import window


@operator("Conv")
def conv(
    X: Array,  # noqa: N803
    W: Array,  # noqa: N803
    B: Array | None = None,  # noqa: N803
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolution of `X` (N, C, *size) with `W` (M, C / group, *kernel), plus `B` (M)."""
    check(X, W, group)
    dtype = X.dtype
    if dtype.name in ("float16", "bfloat16"):
        X, W = X.astype(np.float32), W.astype(np.float32)  # noqa: N806
    slid = window(X.shape[2:], W.shape[2:], strides, pads, dilations, auto_pad)
    way = depthwise if W.shape[1] == 1 and group > 1 else convolve
    made = way(X, W, slid, group)
    if B is not None:
        made += B.astype(made.dtype).reshape(-1, *[1] * (X.ndim - 2))
    return made.astype(dtype, copy=False)
