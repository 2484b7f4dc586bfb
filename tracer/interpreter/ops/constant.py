"""Constant, ConstantOfShape, EyeLike, Range, OneHot: generated tensors."""

from collections.abc import Sequence

import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.tensors import nonnegative_axis
from tracer.interpreter.operators import operator
from tracer.support.types import Array


@operator("Constant")
def constant(
    *, value: Array | None = None, sparse_value: Array | None = None,
    value_float: float | None = None, value_floats: Sequence[float] | None = None,
    value_int: int | None = None, value_ints: Sequence[int] | None = None,
    value_string: str | None = None, value_strings: Sequence[str] | None = None,
) -> Array:  # fmt: skip
    """Returns the single attribute that is set, as a tensor."""
    attributes = (
        (value, None),
        (sparse_value, None),
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    )
    for content, dtype in attributes:
        if content is not None:
            return np.array(content, dtype) if dtype else np.asarray(content)
    raise ModelError("no attribute holds a value")


@operator("ConstantOfShape", since=9)
def constant_of_shape(input: Array, *, value: Array | None = None) -> Array:
    """A tensor of the shape in `input`, filled with `value` (default float32 0)."""
    fill = np.zeros(1, np.float32) if value is None else value
    shape = tuple(input.tolist())
    limits.allow(shape, fill.dtype)
    return np.full(shape, fill.reshape(-1)[0], fill.dtype)


@operator("EyeLike", since=9)
def eye_like(input: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    """Ones on the diagonal `k` of a matrix shaped like `input`."""
    kind = input.dtype if dtype is None else onnx.helper.tensor_dtype_to_np_dtype(dtype)
    limits.allow(input.shape, kind)
    return np.eye(input.shape[0], input.shape[1], k).astype(kind)


@operator("Range", since=11)
def range_(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Array:
    """start + i * delta for i = 0, 1, ... up to `limit`; floats are computed in float64."""
    dtype = start.dtype
    wide = np.int64 if dtype.kind in "iu" else np.float64
    first, last, step = (v.reshape(-1)[0].astype(wide) for v in (start, limit, delta))
    if step == 0:
        raise ModelError("delta is 0")
    count = max(int(np.ceil((last - first) / step)), 0)
    limits.allow((count,), np.float64)
    return (np.arange(count, dtype=wide) * step + first).astype(dtype)


@operator("OneHot", since=9)
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """values[1] where the index along the new `axis` equals `indices`, else values[0]."""
    count = int(depth.reshape(-1)[0])
    shape = list(indices.shape)
    at = nonnegative_axis(axis, indices.ndim + 1)
    shape.insert(at, count)
    limits.allow(shape, values.dtype)
    numbers = indices.astype(np.int64)
    numbers = np.where(numbers < 0, numbers + count, numbers)
    hot = np.expand_dims(numbers, at) == np.arange(count).reshape([-1] + [1] * (indices.ndim - at))
    return np.where(hot, values[1], values[0]).astype(values.dtype)
