"""onnxruntime's normalisations, with the sums that it fuses before them.

SimplifiedLayerNormalization is the RMS normalisation. onnxruntime registers it in the domain of
ONNX; the others are of com.microsoft.
"""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.half_types import widened
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.ops.normalization import layer_normalization, root_mean_square
from tracer.interpreter.ops.quantization import dequantize_linear
from tracer.interpreter.registry import operator
from tracer.support.types import Array

operator("LayerNormalization", domain=DOMAIN, copies=2)(layer_normalization)


@operator("SimplifiedLayerNormalization", copies=2)
@operator("SimplifiedLayerNormalization", domain=DOMAIN, copies=2)
def simplified_layer_normalization(
    X: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Array, Array]:
    """Divides by the root mean square over the axes from `axis` on; also returns 1 / root."""
    wide, root = root_mean_square(X, axis, epsilon, stash_type)
    return (wide / root * scale).astype(scale.dtype, copy=False), 1 / root


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN, copies=3)
def skip_simplified_layer_normalization(
    input: Array,
    skip: Array,
    gamma: Array,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, ...]:
    """The RMS normalisation of input + skip + bias; also returns 1 / root (twice) and the sum."""
    total = _total(input, skip, bias, gamma)
    output, inverse = simplified_layer_normalization(total, widened(gamma), epsilon=epsilon)
    kind = input.dtype
    return output.astype(kind, copy=False), inverse, inverse, total.astype(kind, copy=False)


@operator("SkipLayerNormalization", domain=DOMAIN, copies=3)
def skip_layer_normalization(
    input: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, ...]:
    """Normalises input + skip + bias; also returns mean, inverse deviation and the sum."""
    total = _total(input, skip, bias, gamma)
    shift = None if beta is None else widened(beta)
    output, mean, inverse = layer_normalization(total, widened(gamma), shift, epsilon=epsilon)
    kind = input.dtype
    return output.astype(kind, copy=False), mean, inverse, total.astype(kind, copy=False)


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Array, ...]:
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


@operator("QEmbedLayerNormalization", domain=DOMAIN)
def quantized_embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding_quant: Array,
    position_embedding_quant: Array,
    segment_embedding: Array | None,
    gamma_quant: Array,
    beta_quant: Array,
    mask: Array | None,
    word_embedding_scale: Array,
    position_embedding_scale: Array,
    segment_embedding_scale: Array | None,
    gamma_scale: Array,
    beta_scale: Array,
    word_embedding_zero_point: Array,
    position_embedding_zero_point: Array,
    segment_embedding_zero_point: Array | None,
    gamma_zero_point: Array,
    beta_zero_point: Array,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, Array]:
    """EmbedLayerNormalization of tables and weights of 8 bits, without the sum."""
    real = dequantize_linear
    segments = None
    if segment_embedding is not None and segment_embedding_scale is not None:
        segments = real(segment_embedding, segment_embedding_scale, segment_embedding_zero_point)
    output, words, _ = embed_layer_normalization(
        input_ids,
        segment_ids,
        real(word_embedding_quant, word_embedding_scale, word_embedding_zero_point),
        real(position_embedding_quant, position_embedding_scale, position_embedding_zero_point),
        segments,
        real(gamma_quant, gamma_scale, gamma_zero_point),
        real(beta_quant, beta_scale, beta_zero_point),
        mask,
        epsilon=epsilon,
    )
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
    if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise ModelError(f"{name} has {wrong}, and its table has {len(table)} rows, from 0")
    return widened(table[ids])
