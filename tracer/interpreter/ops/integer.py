"""ConvInteger, QLinearConv, QLinearMatMul: exact integer sums, requantised where asked."""

from collections.abc import Sequence

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.convolution import check, convolve
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.ops.matmul import integer_matmul, per_row
from tracer.interpreter.ops.quantization import rounded
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Ints = Sequence[int] | None


@operator("ConvInteger", since=10)
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: _Ints = None,
    group: int = 1,
    kernel_shape: _Ints = None,
    pads: _Ints = None,
    strides: _Ints = None,
) -> Array:
    """Subtracts the zero points of 8-bit tensors and convolves into int32; padding is 0."""
    check(x, w, group)
    slid = window(x.shape[2:], w.shape[2:], strides, pads, dilations, auto_pad)
    return convolve_centred(centred(x, x_zero_point), centred(w, w_zero_point), slid, group)


@operator("QLinearConv", since=10)
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: _Ints = None,
    group: int = 1,
    kernel_shape: _Ints = None,
    pads: _Ints = None,
    strides: _Ints = None,
) -> Array:
    """Convolves quantised tensors, adds the int32 bias, requantises."""
    exact = conv_integer(
        x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group,
        pads=pads, strides=strides,
    )  # fmt: skip
    channels = (-1, *[1] * (x.ndim - 2))
    if B is not None:
        exact += B.reshape(channels)
    factor = x_scale * (w_scale.reshape(channels) if w_scale.size > 1 else w_scale) / y_scale
    return requantized(exact, factor, y_zero_point)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    """Multiplies quantised matrices and requantises; scales may be per row or column."""
    left = a.astype(np.int32) - per_row(a_zero_point)
    right = b.astype(np.int32) - b_zero_point.astype(np.int32)
    exact = integer_matmul(left, right, products.integers)
    return requantized(exact, matmul_factor(a_scale, b_scale, y_scale), y_zero_point)


def matmul_factor(a_scale: Array, b_scale: Array, y_scale: Array) -> Array:
    """Returns the factor from sums of products to quantised results, by row and column."""
    rows = a_scale[..., None] if a_scale.ndim == 1 and a_scale.size > 1 else a_scale
    factor: Array = rows.astype(np.float32) * b_scale.astype(np.float32)
    return factor / y_scale.astype(np.float32)


def requantized(sums: Array, factor: Array, zero_point: Array) -> Array:
    """Returns sums of products times `factor`, quantised with `zero_point`."""
    return rounded((sums * factor).astype(np.float32), zero_point, zero_point.dtype)


def centred(tensor: Array, zero_point: Array | None) -> Array:
    """Returns int32 minus the zero point, which is one number or one per output channel."""
    wide = tensor.astype(np.int32)
    if zero_point is None:
        return wide
    if zero_point.size > 1:
        if zero_point.size != len(tensor):
            raise ModelError(f"{zero_point.size} zero points for {len(tensor)} channels")
        return wide - zero_point.astype(np.int32).reshape(-1, *[1] * (tensor.ndim - 1))
    return wide - zero_point.astype(np.int32).reshape(())


def convolve_centred(x: Array, w: Array, slid: Window, group: int) -> Array:
    """Convolves integers exactly into int32, in floats as far as floats are exact."""
    depth = int(np.prod(w.shape[1:]))
    carrier = products.carrier(x, w, depth)
    sums = convolve(x.astype(carrier), w.astype(carrier), slid, group)
    return sums.astype(np.int64).astype(np.int32)  # wraps as int32 does
