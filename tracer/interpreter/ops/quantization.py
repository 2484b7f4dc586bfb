"""Conversion between element types: Cast, CastLike, BitCast, QuantizeLinear, DequantizeLinear."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import compiled
from tracer.interpreter.numeric.tensors import apply, nonnegative_axis
from tracer.interpreter.operators import operator
from tracer.support.types import Array

_SATURATING = {
    np.dtype(getattr(ml_dtypes, f"float8_{kind}"))
    for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
}
_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


@operator("Cast", since=6)
def cast(input: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """Converts to the ONNX type `to`; `saturate` applies to float8, `round_mode` to e8m0."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(to)
    return converted(input, dtype, bool(saturate), round_mode)


@operator("Cast", since=1)
def cast_1(input: Array, *, to: str) -> Array:
    """Cast before opset 6: the type is a name."""
    return cast(input, to=onnx.TensorProto.DataType.Value(to))


@operator("CastLike", since=15)
def cast_like(
    input: Array, target_type: Array, *, saturate: int = 1, round_mode: str = "up"
) -> Array:
    """Converts to the element type of `target_type`."""
    return converted(input, target_type.dtype, bool(saturate), round_mode)


@operator("BitCast", since=26)
def bit_cast(input: Array, *, to: int) -> Array:
    """Reinterprets the bits as another type of the same width."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(to)
    return np.ascontiguousarray(input).view(dtype).reshape(input.shape)


def converted(x: Array, dtype: np.dtype[Any], saturate: bool, round_mode: str) -> Array:
    """Converts by the table in the specification of Cast."""
    if x.dtype == dtype:
        return x
    limits.allow(x.shape, dtype)
    if dtype.hasobject:
        plain = x if x.dtype.kind in "biuf" else x.astype(np.float32)
        return plain.astype(np.str_).astype(object)
    if x.dtype.hasobject:
        return x.astype(np.str_).astype(np.float64).astype(dtype)
    if dtype == _E8M0:
        wide = x.astype(np.float32)
        return onnx.numpy_helper.to_float8e8m0(wide, saturate, round_mode).astype(dtype)
    if saturate and dtype in _SATURATING:
        info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        wide = x.astype(np.float32)
        return np.clip(wide, np.float32(info.min), np.float32(info.max)).astype(dtype)
    if dtype == np.bool_:
        return x != np.zeros((), x.dtype)
    return x.astype(dtype)


@operator("QuantizeLinear", since=10)
def quantize_linear(
    x: Array, y_scale: Array, y_zero_point: Array | None = None,
    *, axis: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0,
    saturate: int = 1,
) -> Array:  # fmt: skip
    """round(x / scale) + zero point, saturated to the range of the result's type.

    The scale is one number, one per slice of `axis`, or one per `block_size` slices.
    """
    dtype = quantized_type(y_zero_point, output_dtype)
    if not precision and compiled.takes_quantization(x, y_scale, y_zero_point, dtype):
        return compiled.quantize(x, y_scale, y_zero_point, dtype)
    scale = aligned(y_scale, x, axis, block_size)
    wide = np.dtype(np.float32) if x.dtype.kind in "iu" else x.dtype
    if precision:
        wide = onnx.helper.tensor_dtype_to_np_dtype(precision)
    ratio = apply(np.divide, x.astype(wide, copy=False), scale.astype(wide, copy=False))
    zero = None if y_zero_point is None else aligned(y_zero_point, x, axis, block_size)
    if not is_integer(dtype):
        shifted = ratio if zero is None else ratio + zero.astype(wide)
        return converted(shifted, dtype, bool(saturate), "up")
    return rounded(ratio.astype(np.float32, copy=False), zero, dtype)


@operator("DequantizeLinear", since=10)
def dequantize_linear(
    x: Array, x_scale: Array, x_zero_point: Array | None = None,
    *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
) -> Array:  # fmt: skip
    """(x - zero point) * scale. Raises ModelError for a zero point of another type than x."""
    if x_zero_point is not None and x_zero_point.dtype != x.dtype:
        raise ModelError(f"x is {x.dtype}, and its zero point {x_zero_point.dtype}")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(output_dtype) if output_dtype else x_scale.dtype
    if compiled.takes_quantization(x, x_scale, x_zero_point, dtype):
        return compiled.dequantize(x, x_scale, x_zero_point)
    wide = np.float64 if x.dtype == np.int32 else np.float32  # float32 would round int32
    scale = aligned(x_scale, x, axis, block_size).astype(wide)
    shift = aligned(np.zeros(1) if x_zero_point is None else x_zero_point, x, axis, block_size)

    def compute(x: Array, shift: Array, scale: Array, out: Array) -> None:
        centred: Array = x.astype(wide)
        np.subtract(centred, shift, out=centred)
        np.multiply(centred, scale, out=centred)
        out[...] = centred

    return apply(compute, x, shift.astype(wide), scale, dtype=dtype)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """Quantises to uint8; scale and zero point follow from the range of `x` and 0."""
    low, high = (fold.reduce(x, None, initial=np.float32(0)) for fold in (np.fmin, np.fmax))
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    zero = np.asarray(np.fmax(np.fmin(np.rint(-low / scale), 255), 0), np.uint8)
    return rounded(x / scale, zero, np.dtype(np.uint8)), np.asarray(scale), zero


def rounded(ratio: Array, zero: Array | None, dtype: np.dtype[Any]) -> Array:
    """round(ratio) + zero as an integer type: half to even, saturated, the least for NaN."""
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    wide = ratio.dtype.type
    shift = np.zeros((), wide) if zero is None else zero.astype(wide)
    native = dtype if dtype.kind in "iu" else np.dtype(np.int8)  # holds 2 and 4 bits

    def compute(ratio: Array, shift: Array, out: Array) -> None:
        shifted = np.rint(ratio, out=np.empty_like(ratio))  # an array even of rank 0
        shifted += shift
        np.fmax(shifted, wide(int(info.min)), out=shifted)  # also in place of NaN
        np.minimum(shifted, wide(int(info.max)), out=shifted)
        out[...] = shifted

    return apply(compute, ratio, shift, dtype=native).astype(dtype, copy=False)


def aligned(parameter: Array, x: Array, axis: int, block_size: int) -> Array:
    """Reshapes a scale or zero point to match `x`: per tensor, per axis, or per block."""
    if parameter.size == 1:
        return parameter.reshape(())
    if block_size:
        at = nonnegative_axis(axis, x.ndim)
        repeated = np.repeat(parameter, block_size, axis=at)
        return repeated[(slice(None),) * at + (slice(x.shape[at]),)]
    if parameter.ndim != 1 or parameter.size != x.shape[nonnegative_axis(axis, x.ndim)]:
        raise ModelError(
            f"a parameter of shape {list(parameter.shape)} for axis {axis} of {list(x.shape)}"
        )
    shape = [1] * x.ndim
    shape[axis] = -1
    return parameter.reshape(shape)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a type is an integer type, including 2 and 4 bits of ml_dtypes."""
    return dtype.kind in "iu" or dtype.name.startswith(("int", "uint"))


def quantized_type(zero_point: Array | None, output_dtype: int) -> np.dtype[Any]:
    """The type that QuantizeLinear returns. Raises ModelError where two are declared."""
    declared = onnx.helper.tensor_dtype_to_np_dtype(output_dtype) if output_dtype else None
    if zero_point is None:
        return np.dtype(np.uint8) if declared is None else declared
    if declared is not None and declared != zero_point.dtype:
        raise ModelError(f"output_dtype is {declared}, the zero point {zero_point.dtype}")
    return zero_point.dtype
