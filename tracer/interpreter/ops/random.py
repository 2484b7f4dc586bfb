"""Random tensors, from numpy's PCG64, and Dropout.

ONNX does not specify the generator; here every run gives the same bits: the seed is the attribute,
or else follows from the node's key.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import onnx

from tracer import limits
from tracer.interpreter.operators import NodeContext, operator
from tracer.support.types import Array


@operator("RandomNormal")
def random_normal(
    *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None, ctx: NodeContext,
) -> Array:  # fmt: skip
    """Normal values of mean `mean` and standard deviation `scale`."""
    limits.allow(shape, np.float64)
    return generator(seed, ctx).normal(mean, scale, tuple(shape)).astype(_dtype(dtype))


@operator("RandomNormalLike")
def random_normal_like(
    input: Array,
    *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None,
    ctx: NodeContext,
) -> Array:  # fmt: skip
    """Normal values in the shape of `input`; `dtype` defaults to its type."""
    kind = input.dtype if dtype is None else _dtype(dtype)
    limits.allow(input.shape, np.float64)
    return generator(seed, ctx).normal(mean, scale, input.shape).astype(kind)


@operator("RandomUniform")
def random_uniform(
    *, shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0,
    seed: float | None = None, ctx: NodeContext,
) -> Array:  # fmt: skip
    """Uniform values in [low, high)."""
    limits.allow(shape, np.float64)
    return generator(seed, ctx).uniform(low, high, tuple(shape)).astype(_dtype(dtype))


@operator("RandomUniformLike")
def random_uniform_like(
    input: Array,
    *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None,
    ctx: NodeContext,
) -> Array:  # fmt: skip
    """Uniform values in [low, high) in the shape of `input`; `dtype` defaults to its type."""
    kind = input.dtype if dtype is None else _dtype(dtype)
    limits.allow(input.shape, np.float64)
    return generator(seed, ctx).uniform(low, high, input.shape).astype(kind)


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
    *, consumed_inputs: Sequence[int] | None = None, is_test: int = 0, ratio: float = 0.5,
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
