"""Cast, CastLike, BitCast: conversion between element types."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tracer import limits
from tracer.interpreter.operators import operator
from tracer.support.types import Array

_SATURATING = {
    np.dtype(kind)
    for kind in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
}
_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


@operator("Cast", since=6)
def cast(input: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """Converts to the ONNX type `to`; `saturate` applies to float8, `round_mode` to e8m0."""
    return converted(input, _dtype(to), bool(saturate), round_mode)


@operator("Cast", since=1)
def cast_1(input: Array, *, to: str) -> Array:
    """Cast before opset 6: the type is a name."""
    return converted(input, _dtype(onnx.TensorProto.DataType.Value(to)), True, "up")


@operator("CastLike", since=15)
def cast_like(
    input: Array, target_type: Array, *, saturate: int = 1, round_mode: str = "up"
) -> Array:
    """Converts to the element type of `target_type`."""
    return converted(input, target_type.dtype, bool(saturate), round_mode)


@operator("BitCast", since=26)
def bit_cast(input: Array, *, to: int) -> Array:
    """Reinterprets the bits as another type of the same width."""
    return np.ascontiguousarray(input).view(_dtype(to)).reshape(input.shape)


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


def _dtype(elem_type: int) -> np.dtype[Any]:
    if elem_type == onnx.TensorProto.STRING:
        return np.dtype(object)
    return onnx.helper.tensor_dtype_to_np_dtype(elem_type)
