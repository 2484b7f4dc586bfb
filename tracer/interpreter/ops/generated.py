"""Generated tensors: constants, ranges, one-hot and random ones, and Dropout.

ONNX does not specify a generator of random numbers. They are from numpy's PCG64, the same bits in
every run: the seed is the attribute, or else follows from the node's key.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.tensors import nonnegative_axis
from tracer.interpreter.operators import Floats, Ints, NodeContext, operator, parameters_of
from tracer.support.types import Array


@operator("Constant")
def constant(
    *, value: Array | None = None, sparse_value: Array | None = None,
    value_float: float | None = None, value_floats: Floats = None,
    value_int: int | None = None, value_ints: Ints = None,
    value_string: str | None = None, value_strings: Sequence[str] | None = None,
) -> Array:  # fmt: skip
    """Returns the single attribute that is set, as a tensor."""
    attributes = (
        (None, (value, sparse_value)), (np.float32, (value_float, value_floats)),
        (np.int64, (value_int, value_ints)), (object, (value_string, value_strings)),
    )  # fmt: skip
    for dtype, contents in attributes:
        for content in contents:
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


@operator("RandomNormal")
def random_normal(
    *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None, ctx: NodeContext,
) -> Array:  # fmt: skip
    """Normal values of mean `mean` and standard deviation `scale`."""
    limits.allow(shape, np.float64)
    return generator(seed, ctx).normal(mean, scale, tuple(shape)).astype(_dtype(dtype))


@operator("RandomNormalLike")
@parameters_of(random_normal, without=["shape"])
def random_normal_like(input: Array, *, dtype: int | None = None, **attributes: Any) -> Array:
    """Normal values in the shape of `input`; `dtype` defaults to its type."""
    number = onnx.helper.np_dtype_to_tensor_dtype(input.dtype) if dtype is None else dtype
    return random_normal(shape=input.shape, dtype=number, **attributes)


@operator("RandomUniform")
def random_uniform(
    *, shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0,
    seed: float | None = None, ctx: NodeContext,
) -> Array:  # fmt: skip
    """Uniform values in [low, high)."""
    limits.allow(shape, np.float64)
    return generator(seed, ctx).uniform(low, high, tuple(shape)).astype(_dtype(dtype))


@operator("RandomUniformLike")
@parameters_of(random_uniform, without=["shape"])
def random_uniform_like(input: Array, *, dtype: int | None = None, **attributes: Any) -> Array:
    """Uniform values in [low, high) in the shape of `input`; `dtype` defaults to its type."""
    number = onnx.helper.np_dtype_to_tensor_dtype(input.dtype) if dtype is None else dtype
    return random_uniform(shape=input.shape, dtype=number, **attributes)


@operator("Bernoulli", since=15, copies=4)
def bernoulli(
    input: Array, *, dtype: int | None = None, seed: float | None = None, ctx: NodeContext
) -> Array:
    """1 with the probability in `input`, else 0."""
    kind = input.dtype if dtype is None else _dtype(dtype)
    return (generator(seed, ctx).random(input.shape) < input.astype(np.float64)).astype(kind)


@operator("Multinomial", since=7, copies=2)
def multinomial(
    input: Array,
    *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, ctx: NodeContext,
) -> Array:  # fmt: skip
    """`sample_size` classes for each row of unnormalised log probabilities."""
    logits = input.astype(np.float64)
    limits.allow((input.shape[0], sample_size, input.shape[1]), np.float64)
    noise = generator(seed, ctx).gumbel(size=(input.shape[0], sample_size, input.shape[1]))
    return np.argmax(logits[:, None, :] + noise, axis=-1).astype(_dtype(dtype))


@operator("Dropout", since=12)
def dropout(
    data: Array, ratio: Array | None = None, training_mode: Array | None = None,
    *, seed: int | None = None, ctx: NodeContext,
) -> tuple[Array, Array]:  # fmt: skip
    """Returns the input and a mask; in training random elements are 0 and the rest scaled up."""
    share = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training_mode is None or not training_mode.any() or share == 0:
        return data, np.ones(data.shape, np.bool_)
    limits.allow(data.shape, np.float64)
    # ONNX's own test cases use numpy's legacy generator, seeded by the attribute.
    draws = np.random.RandomState(seed_of(ctx) if seed is None else seed).uniform(size=data.shape)
    mask = np.greater_equal(draws, share)
    return (data * mask / np.array(1 - share, data.dtype)).astype(data.dtype), mask


@operator("Dropout", since=10)
def dropout_10(data: Array, *, ratio: float = 0.5) -> tuple[Array, Array]:
    """Dropout of opset 10: returns the input, and a mask of zeros as onnxruntime does."""
    return data, np.zeros(data.shape, np.bool_)


@operator("Dropout")
def dropout_1(
    data: Array,
    *, consumed_inputs: Ints = None, is_test: int = 0, ratio: float = 0.5,
) -> tuple[Array, Array]:  # fmt: skip
    """Dropout before opset 10: the mask, which nothing fills, has the type of the input."""
    return data, np.zeros(data.shape, data.dtype)


def generator(seed: float | None, ctx: NodeContext) -> np.random.Generator:
    """Returns a new generator, the same in every run."""
    bits = seed_of(ctx) if seed is None else int(np.float32(seed).view(np.uint32))
    return np.random.default_rng(bits)


def seed_of(ctx: NodeContext) -> int:
    """Returns a 32-bit seed derived from the node's key."""
    return zlib.crc32(ctx.node.key.encode())


def _dtype(elem_type: int) -> np.dtype[np.generic]:
    return onnx.helper.tensor_dtype_to_np_dtype(elem_type)
