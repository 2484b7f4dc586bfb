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
    if X.dtype.name in ("float16", "bfloat16"):
        wide = [None if v is None else v.astype(np.float32) for v in (X, W, B)]
        made = conv(
            wide[0], wide[1], wide[2], auto_pad=auto_pad, dilations=dilations, group=group,
            pads=pads, strides=strides,
        )  # type: ignore[arg-type]  # fmt: skip
        return made.astype(X.dtype)
    check(X, W, group)
    slid = window(X.shape[2:], W.shape[2:], strides, pads, dilations, auto_pad)
    way = depthwise if W.shape[1] == 1 and group > 1 else convolve
    made = way(X, W, slid, group)
    if B is not None:
        made += B.reshape(-1, *[1] * (X.ndim - 2))
    return made
