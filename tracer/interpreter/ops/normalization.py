"""Batch, instance, group, layer, RMS, Lp and local response normalisation; those of onnxruntime.

SimplifiedLayerNormalization is the RMS normalisation. onnxruntime registers it in the domain of
ONNX; others of com.microsoft normalise the sums that it fuses before them.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import compiled
from tracer.interpreter.numeric.tensors import apply, are_indices, nonnegative_axis, widened
from tracer.interpreter.operators import MICROSOFT, Ints, operator
from tracer.interpreter.ops.quantization import dequantize_linear
from tracer.support.types import Array


@operator("BatchNormalization", since=14)
def batch_normalization(
    X: Array, scale: Array, B: Array, input_mean: Array, input_var: Array,
    *, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> Array | tuple[Array, ...]:  # fmt: skip
    """Normalises each channel by its stored statistics, in training by the batch's."""
    if not training_mode:
        return _by_channel(X, scale, B, input_mean, input_var, epsilon)
    axes = tuple(axis for axis in range(X.ndim) if axis != 1)
    wide = X.astype(np.float64)
    mean, variance = wide.mean(axes), wide.var(axes)
    output = _by_channel(X, scale, B, mean.astype(input_mean.dtype), variance, epsilon)
    running_mean = (input_mean * momentum + mean * (1 - momentum)).astype(input_mean.dtype)
    running_var = (input_var * momentum + variance * (1 - momentum)).astype(input_var.dtype)
    return output, running_mean, running_var


@operator("BatchNormalization")
def batch_normalization_1(
    X: Array, scale: Array, B: Array, mean: Array, var: Array,
    *, consumed_inputs: Ints = None, epsilon: float = 1e-5, is_test: int = 0,
    momentum: float = 0.9, spatial: int = 1,
) -> Array:  # fmt: skip
    """Inference before opset 14; `spatial` 0 has statistics per element."""
    if spatial:
        return _by_channel(X, scale, B, mean, var, epsilon)
    factor = scale / np.sqrt(var + np.array(epsilon, var.dtype))
    return (X - mean) * factor + B


@operator("InstanceNormalization", copies=2)
def instance_normalization(
    input: Array, scale: Array, B: Array, *, consumed_inputs: Ints = None, epsilon: float = 1e-5
) -> Array:
    """Normalises each channel of each image by its own mean and variance."""
    axes = tuple(range(2, input.ndim))
    ready = _standardized(input, axes, epsilon)
    return (ready * _channels(scale, input.ndim) + _channels(B, input.ndim)).astype(input.dtype)


@operator("GroupNormalization", since=21, copies=2)
def group_normalization(
    X: Array, scale: Array, bias: Array,
    *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1,
) -> Array:  # fmt: skip
    """Normalises each group of channels of each image by its own mean and variance."""
    grouped = X.reshape(len(X), num_groups, math.prod(X.shape[1:]) // num_groups)
    ready = _standardized(_stashed(grouped, stash_type), (2,), epsilon).reshape(X.shape)
    ready = ready.astype(X.dtype)
    return ready * _channels(scale, X.ndim) + _channels(bias, X.ndim)


@operator("GroupNormalization", since=18, copies=2)
def group_normalization_18(
    X: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, num_groups: int
) -> Array:
    """GroupNormalization before opset 21: scale and bias are per group."""
    each = X.shape[1] // num_groups
    return group_normalization(
        X, np.repeat(scale, each), np.repeat(bias, each), epsilon=epsilon, num_groups=num_groups
    )


@operator("LayerNormalization", copies=2)
def layer_normalization(
    X: Array, Scale: Array, B: Array | None = None,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> tuple[Array, ...]:  # fmt: skip
    """Normalises the axes from `axis` on; also returns mean and inverse deviation.

    It is of version 17; onnxruntime has it at every version, and its optimiser writes it there.
    """
    first = nonnegative_axis(axis, X.ndim)
    axes = tuple(range(first, X.ndim))
    wide = _stashed(X, stash_type)
    if compiled.takes_rows(wide) and X.dtype == wide.dtype and Scale.shape == X.shape[first:]:
        shift = np.zeros_like(Scale) if B is None else np.broadcast_to(B, Scale.shape)
        output, *statistics = compiled.normalize(X, Scale, shift, epsilon)
        shape = X.shape[:first] + (1,) * len(axes)
        return output, *(each.reshape(shape) for each in statistics)
    mean = wide.mean(axes, keepdims=True)
    ready = wide - mean
    variance = np.square(ready).mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(variance + np.array(epsilon, variance.dtype))
    ready *= inverse
    output = ready.astype(X.dtype, copy=False) * Scale
    if B is not None:
        output += B
    return output, mean, inverse


operator("LayerNormalization", domain=MICROSOFT, copies=2)(layer_normalization)


@operator("RMSNormalization", since=23, copies=2)
def rms_normalization(
    X: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    """Divides by the root mean square over the axes from `axis` on."""
    wide, root = root_mean_square(X, axis, epsilon, stash_type)
    ready = wide / root
    return (ready.astype(X.dtype, copy=False) * scale).astype(scale.dtype, copy=False)


def root_mean_square(x: Array, axis: int, epsilon: float, stash_type: int) -> tuple[Array, Array]:
    """Returns x in the type of its statistics, and sqrt(mean of squares + epsilon) of each row.

    A row has the axes from `axis` on, which the root keeps with size 1.
    """
    wide = _stashed(x, stash_type)
    axes = tuple(range(nonnegative_axis(axis, x.ndim), x.ndim))
    square = np.square(wide).mean(axes, keepdims=True)
    return wide, np.sqrt(square + np.array(epsilon, square.dtype))


@operator("MeanVarianceNormalization", since=9, copies=2)
def mean_variance_normalization(X: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """(X - mean) / (standard deviation + 1e-9) over the axes."""
    dims = tuple(axes)
    mean = X.mean(dims, keepdims=True)
    deviation = np.sqrt(np.square(X).mean(dims, keepdims=True) - np.square(mean))
    return ((X - mean) / (deviation + np.array(1e-9, X.dtype))).astype(X.dtype)


@operator("LpNormalization", copies=2)
def lp_normalization(input: Array, *, axis: int = -1, p: int = 2) -> Array:
    """Divides each row by its p-norm; rows of norm 0 stay 0."""
    if p not in (1, 2):
        raise ModelError(f"p is {p}, neither 1 nor 2")
    size = np.absolute(input)
    total = (size if p == 1 else np.square(size)).sum(axis, keepdims=True)
    norm = total if p == 1 else np.sqrt(total)
    return np.divide(input, norm, out=np.zeros_like(input), where=norm != 0)


@operator("LRN")
def lrn(
    X: Array, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int
) -> Array:
    """Divides by (bias + alpha / size * sum of squares of `size` neighbour channels)^beta."""
    channels = X.shape[1]
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = np.square(X)
    total = np.zeros_like(X)
    for offset in range(-min(before, channels - 1), min(after, channels - 1) + 1):
        low, high = max(-offset, 0), min(channels - offset, channels)
        total[:, low:high] += squares[:, low + offset : high + offset]
    return X / (bias + alpha / size * total) ** np.array(beta, X.dtype)


def _by_channel(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float
) -> Array:
    channels = x.shape[1] if x.ndim > 1 else 1
    if any(v.shape != (channels,) for v in (scale, bias, mean, variance)):
        raise ModelError(f"parameters that are not one number for each of {channels} channels")
    factor = scale / np.sqrt(variance + np.array(epsilon, variance.dtype))
    shift = bias - mean * factor
    if compiled.takes_elements(x):
        return compiled.affine(x, *(np.ascontiguousarray(v, np.float32) for v in (factor, shift)))
    rank = x.ndim if x.ndim > 1 else 2

    def compute(x: Array, factor: Array, shift: Array, out: Array) -> None:
        np.multiply(x, factor, out=out)
        out += shift

    dtype = x.dtype
    parts = (_channels(v.astype(dtype), rank) for v in (factor, shift))
    return apply(compute, x, *parts)


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    ready = x - x.mean(axes, keepdims=True)
    variance = np.square(ready).mean(axes, keepdims=True)
    ready /= np.sqrt(variance + np.array(epsilon, variance.dtype))
    return ready


def _stashed(x: Array, stash_type: int) -> Array:
    """Converts to the type in which statistics are computed."""
    return x.astype(onnx.helper.tensor_dtype_to_np_dtype(stash_type), copy=False)


def _channels(vector: Array, rank: int) -> Array:
    return vector.reshape(-1, *[1] * (rank - 2))


@operator("SimplifiedLayerNormalization", copies=2)
@operator("SimplifiedLayerNormalization", domain=MICROSOFT, copies=2)
def simplified_layer_normalization(
    X: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Array, Array]:
    """Divides by the root mean square over the axes from `axis` on; also returns 1 / root."""
    wide, root = root_mean_square(X, axis, epsilon, stash_type)
    return (wide / root * scale).astype(scale.dtype, copy=False), 1 / root


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT, copies=3)
def skip_simplified_layer_normalization(
    input: Array, skip: Array, gamma: Array, bias: Array | None = None, *, epsilon: float = 1e-12
) -> tuple[Array, ...]:
    """The RMS normalisation of input + skip + bias; also returns 1 / root (twice) and the sum."""
    total = _total(input, skip, bias, gamma)
    output, inverse = simplified_layer_normalization(total, widened(gamma), epsilon=epsilon)
    kind = input.dtype
    return output.astype(kind, copy=False), inverse, inverse, total.astype(kind, copy=False)


@operator("SkipLayerNormalization", domain=MICROSOFT, copies=3)
def skip_layer_normalization(
    input: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None,
    *, epsilon: float = 1e-12,
) -> tuple[Array, ...]:  # fmt: skip
    """Normalises input + skip + bias; also returns mean, inverse deviation and the sum."""
    total = _total(input, skip, bias, gamma)
    shift = None if beta is None else widened(beta)
    output, mean, inverse = layer_normalization(total, widened(gamma), shift, epsilon=epsilon)
    kind = input.dtype
    return output.astype(kind, copy=False), mean, inverse, total.astype(kind, copy=False)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    input_ids: Array, segment_ids: Array | None, word_embedding: Array, position_embedding: Array,
    segment_embedding: Array | None, gamma: Array, beta: Array, mask: Array | None = None,
    position_ids: Array | None = None,
    *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> tuple[Array, ...]:  # fmt: skip
    """Normalises the sum of the embeddings; also returns the words of each sentence, and the sum.

    The words of a sentence are those that `mask` has 1 for; 0 without a mask.
    """
    batch, tokens = input_ids.shape
    limits.allow((batch, tokens, word_embedding.shape[-1]), np.float32)
    places = np.arange(tokens)[None] if position_ids is None else position_ids
    total = _looked_up(word_embedding, input_ids, "input_ids")
    total = total + _looked_up(position_embedding, places, "position_ids")
    if segment_embedding is not None and segment_ids is not None:
        total += _looked_up(segment_embedding, segment_ids, "segment_ids")
    output, *_ = layer_normalization(total, widened(gamma), widened(beta), epsilon=epsilon)
    words = np.zeros(batch, np.int32) if mask is None else (mask == 1).sum(axis=1, dtype=np.int32)
    kind = word_embedding.dtype
    return output.astype(kind, copy=False), words, total.astype(kind, copy=False)


@operator("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embed_layer_normalization(
    input_ids: Array, segment_ids: Array | None, word_embedding_quant: Array,
    position_embedding_quant: Array, segment_embedding: Array | None, gamma_quant: Array,
    beta_quant: Array, mask: Array | None, word_embedding_scale: Array,
    position_embedding_scale: Array, segment_embedding_scale: Array | None, gamma_scale: Array,
    beta_scale: Array, word_embedding_zero_point: Array, position_embedding_zero_point: Array,
    segment_embedding_zero_point: Array | None, gamma_zero_point: Array, beta_zero_point: Array,
    *, epsilon: float = 1e-12,
) -> tuple[Array, Array]:  # fmt: skip
    """EmbedLayerNormalization of tables and weights of 8 bits, without the sum."""
    real = dequantize_linear
    segments = None
    if segment_embedding is not None and segment_embedding_scale is not None:
        segments = real(segment_embedding, segment_embedding_scale, segment_embedding_zero_point)
    output, words, _ = embed_layer_normalization(
        input_ids, segment_ids,
        real(word_embedding_quant, word_embedding_scale, word_embedding_zero_point),
        real(position_embedding_quant, position_embedding_scale, position_embedding_zero_point),
        segments, real(gamma_quant, gamma_scale, gamma_zero_point),
        real(beta_quant, beta_scale, beta_zero_point), mask, epsilon=epsilon,
    )  # fmt: skip
    return output, words


def _total(input: Array, skip: Array, bias: Array | None, gamma: Array) -> Array:
    """Returns input + skip + bias, in float32 for half precision. Raises ModelError."""
    width = input.shape[-1]
    if skip.shape != input.shape[-skip.ndim :] and skip.shape != (1, *input.shape[1:]):
        raise ModelError(
            f"the skip of shape {list(skip.shape)} does not fit the input {list(input.shape)}",
            "It has the shape of the input, perhaps without its batch, or with a batch of 1.",
        )
    for name, vector in (("gamma", gamma), ("bias", bias)):
        if vector is not None and vector.shape != (width,):
            raise ModelError(f"{name} of shape {list(vector.shape)} is not one for {width} columns")
    total = widened(input) + widened(skip)
    return total if bias is None else total + widened(bias)


def _looked_up(table: Array, ids: Array, name: str) -> Array:
    """Returns the rows of a table, in float32 for half precision. Raises ModelError."""
    if not are_indices(ids, len(table)):
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise ModelError(f"{name} has {wrong}, and its table has {len(table)} rows, from 0")
    return widened(table[ids])
