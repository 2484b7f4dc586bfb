"""Operators of onnxruntime that are a standard operator at its last version, domain com.microsoft.

Some are older than the standard operator, some let channels be the last axis.
"""

from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.binding import NodeContext
from tracer.interpreter.numeric.axes import nonnegative_axis
from tracer.interpreter.ops.constant import range_
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.ops.conv_transpose import conv_transpose
from tracer.interpreter.ops.gather import gather_nd
from tracer.interpreter.ops.grid_sample import grid_sample_16
from tracer.interpreter.ops.matmul import matmul
from tracer.interpreter.ops.pooling import max_pool
from tracer.interpreter.ops.shape import trilu
from tracer.interpreter.ops.slicing import pad
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Ints = Sequence[int] | None

operator("GatherND", domain=DOMAIN)(gather_nd)
operator("GridSample", domain=DOMAIN)(grid_sample_16)
operator("Trilu", domain=DOMAIN, copies=1)(trilu)


@operator("Pad", domain=DOMAIN)
def pad_1(data: Array, pads: Array, value: Array | None = None, *, mode: str = "constant") -> Array:
    """Pads as the standard's Pad; `pads` may have a leading axis of size 1."""
    return pad(data, pads.reshape(-1), value, mode=mode)


@operator("Range", domain=DOMAIN)
def range_1(start: Array, limit: Array, delta: Array | None = None) -> Array:
    """The numbers from `start` to `limit` in steps of `delta`, by default 1."""
    step = np.ones_like(start) if delta is None else delta
    return range_(*(each.reshape(()) for each in (start, limit, step)))


@operator("ExpandDims", domain=DOMAIN)
def expand_dims(X: Array, axis: Array) -> Array:
    """Inserts an axis of size 1 at `axis`."""
    return np.expand_dims(X, int(axis.reshape(())))


@operator("Inverse", domain=DOMAIN)
def inverse(X: Array) -> Array:
    """The inverse of each matrix, computed in float32 at least."""
    wide = np.promote_types(X.dtype, np.float32)
    return np.linalg.inv(X.astype(wide)).astype(X.dtype)


@operator("Unique", domain=DOMAIN, copies=8)
def unique_in_order(x: Array) -> tuple[Array, Array, Array]:
    """Returns the values of x (N) in the order they first appear, the place of each, and counts."""
    values, first, places, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    ranks = np.argsort(order)
    return values[order], ranks[places.reshape(-1)].astype(np.int64), counts[order].astype(np.int64)


@operator("MatMulInteger16", domain=DOMAIN)
def matmul_integer_16(A: Array, B: Array) -> Array:
    """Multiplies 16-bit integers; sums are 32-bit."""
    return matmul(A.astype(np.int32), B.astype(np.int32))


@operator("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(
    x: Array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: _Ints = None,
    kernel_shape: Sequence[int],
    pads: _Ints = None,
    strides: _Ints = None,
    ctx: NodeContext,
) -> Array:
    """The largest value of each window, with channels at the last axis."""
    first = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    (maxima, *_) = max_pool(
        first, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations,
        kernel_shape=kernel_shape, pads=pads, strides=strides, ctx=ctx,
    )  # fmt: skip
    return np.moveaxis(maxima, 1, -1)


@operator("ConvTransposeWithDynamicPads", domain=DOMAIN)
def conv_transpose_with_dynamic_pads(
    X: Array,
    W: Array,
    Pads: Array | None = None,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: _Ints = None,
    group: int = 1,
    kernel_shape: _Ints = None,
    output_padding: _Ints = None,
    strides: _Ints = None,
) -> Array:
    """The standard's ConvTranspose, whose pads are an input."""
    return conv_transpose(
        X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        output_padding=output_padding, pads=None if Pads is None else Pads.reshape(-1).tolist(),
        strides=strides,
    )  # fmt: skip


@operator("UnfoldTensor", domain=DOMAIN)
def unfold_tensor(input: Array, *, dim: int = -1, size: int, step: int = 1) -> Array:
    """Windows of `size` along an axis, each `step` further, as torch's unfold.

    The elements of a window are a new last axis. Raises ModelError for a window beyond the axis.
    """
    at = nonnegative_axis(dim, input.ndim)
    if not 1 <= size <= input.shape[at] or step < 1:
        raise ModelError(
            f"windows of {size}, each {step} further, along {input.shape[at]} elements"
        )
    windows = np.lib.stride_tricks.sliding_window_view(input, size, axis=at)
    every = windows[(slice(None),) * at + (slice(None, None, step),)]
    limits.allow(every.shape, input.dtype)
    return np.ascontiguousarray(every)
