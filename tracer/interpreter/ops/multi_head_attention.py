"""Attention and MultiHeadAttention, domain com.microsoft: the fusions of BERT and GPT-2."""

from collections.abc import Sequence

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.half_types import widened
from tracer.interpreter.numeric.heads import (
    grouped_product,
    joined_heads,
    split_heads,
    visible_shares,
)
from tracer.interpreter.numeric.padding_masks import added_mask
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Heads = tuple[Array, Array, Array]
"""Query, key and value as [batch, heads, tokens, size]."""

_SHARED_BUFFER = "past and present that share a buffer are of onnxruntime's CUDA kernels"


@operator("Attention", domain=DOMAIN)
def attention(
    input: Array,
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] = (),
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, ...]:
    """Projects the input to queries, keys and values; returns the attention and the present.

    `past` and present are [2, batch, heads, tokens, size], keys first; there is no present where
    keys and values have other sizes. Raises ModelError.
    """
    if past_present_share_buffer or past_sequence_length is not None:
        raise ModelError(_SHARED_BUFFER, "Export with past and present of their own.")
    if do_rotary:
        raise ModelError("do_rotary is 1, for which the operator has no tables of angles")
    query, key, value = _projected(input, weights, bias, num_heads, qkv_hidden_sizes)
    if past is not None:
        if past.ndim != 5 or past.shape[0] != 2:
            raise ModelError(f"past is {list(past.shape)}, not [2, batch, heads, tokens, size]")
        key, value = _after(past[0], key, "past"), _after(past[1], value, "past")
    before = key.shape[2] - query.shape[2] if unidirectional else None
    added = _added(mask_index, attention_bias, query, key, before, mask_filter_value)
    output, _ = _attend((query, key, value), added, scale)
    whole = output.astype(input.dtype, copy=False)
    return (whole, np.stack([key, value])) if key.shape == value.shape else (whole,)


@operator("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, ...]:
    """The attention, the present key and value [batch, heads, tokens, size], and the scores.

    Query, key and value are [batch, tokens, channels], or packed: [batch, tokens, heads, 3, size],
    keys and values [batch, tokens, heads, 2, size]; or keys and values come as heads. Raises
    ModelError.
    """
    if past_sequence_length is not None or cache_indirection is not None:
        raise ModelError(_SHARED_BUFFER, "Export with past and present of their own.")
    heads = _biased(_heads(query, key, value, num_heads), bias, key is not None and key.ndim == 4)
    if (past_key is None) != (past_value is None):
        raise ModelError("past_key and past_value are both given, or neither")
    q, k, v = heads
    if past_key is not None and past_value is not None:
        k, v = _after(past_key, k, "past_key"), _after(past_value, v, "past_value")
    before = k.shape[2] - heads[1].shape[2] if unidirectional else None
    added = _added(key_padding_mask, attention_bias, q, k, before, mask_filter_value)
    output, scores = _attend((q, k, v), added, scale)
    kind = query.dtype
    return output.astype(kind, copy=False), k, v, scores.astype(kind, copy=False)


def _attend(heads: _Heads, added: Array | None, scale: float) -> tuple[Array, Array]:
    """Returns the attention [batch, L, channels] and the scores, halves in float32."""
    query, key, value = map(widened, heads)
    factor = query.dtype.type(scale or 1 / np.sqrt(query.shape[-1]))
    scores = grouped_product(query, np.swapaxes(key, -1, -2)) * factor
    if added is not None:
        scores = scores + added
    return joined_heads(grouped_product(visible_shares(scores, None), value)), scores


def _projected(
    input: Array, weights: Array, bias: Array | None, count: int, sizes: Sequence[int]
) -> _Heads:
    """Returns the input times the weights, plus the bias, as heads. Raises ModelError."""
    columns = weights.shape[-1]
    widths = list(sizes) or [columns // 3] * 3
    if input.ndim != 3 or weights.shape[0] != input.shape[-1] or sum(widths) != columns:
        raise ModelError(
            f"weights {list(weights.shape)} do not take {list(input.shape)} to channels {widths}"
        )
    if bias is not None and bias.shape != (columns,):
        raise ModelError(f"the bias is {list(bias.shape)}, and the weights have {columns} columns")
    projected = products.matmul(input, weights)
    if bias is not None:
        projected = projected + bias
    parts = np.split(projected, np.cumsum(widths)[:2], axis=-1)
    q, k, v = (split_heads(part, count) for part in parts)
    return q, k, v


def _heads(query: Array, key: Array | None, value: Array | None, count: int) -> _Heads:
    """Returns query, key and value as heads, of any of their layouts. Raises ModelError."""
    if key is None:
        q, k, v = _unpacked(query, count, 3)
        return q, k, v
    q = split_heads(query, count)
    if value is None:
        k, v = _unpacked(key, count, 2)
    elif key.ndim == 4 and value.ndim == 4:
        k, v = key, value
    else:
        k, v = split_heads(key, count), split_heads(value, count)
    if k.shape[:3] != v.shape[:3] or k.shape[:2] != q.shape[:2] or k.shape[3] != q.shape[3]:
        shapes = ", ".join(str(list(each.shape)) for each in (q, k, v))
        raise ModelError(f"query, key and value do not fit each other as heads: {shapes}")
    return q, k, v


def _unpacked(packed: Array, count: int, parts: int) -> Sequence[Array]:
    """Returns the parts of [batch, tokens, heads, parts, size] as heads. Raises ModelError."""
    if packed.ndim != 5 or packed.shape[2:4] != (count, parts):
        raise ModelError(
            f"a packed tensor of shape {list(packed.shape)} is not "
            f"[batch, tokens, {count}, {parts}, size]"
        )
    return [packed[:, :, :, part].transpose(0, 2, 1, 3) for part in range(parts)]


def _biased(heads: _Heads, bias: Array | None, query_alone: bool) -> _Heads:
    """Returns heads plus their parts of the bias; or the query alone. Raises ModelError."""
    if bias is None:
        return heads
    widths = [each.shape[1] * each.shape[3] for each in heads]
    if bias.shape != (sum(widths),):
        raise ModelError(f"the bias is {list(bias.shape)}, and the heads have {widths} channels")
    parts = np.split(bias, np.cumsum(widths)[:2])
    if query_alone:
        return heads[0] + parts[0].reshape(1, heads[0].shape[1], 1, -1), *heads[1:]
    q, k, v = (
        each + part.reshape(1, each.shape[1], 1, each.shape[3])
        for each, part in zip(heads, parts, strict=True)
    )
    return q, k, v


def _after(past: Array, new: Array, name: str) -> Array:
    """Returns the tokens of the past, then the new ones. Raises ModelError."""
    batch, heads, _, size = new.shape
    if past.ndim != 4 or past.shape != (batch, heads, past.shape[2], size):
        raise ModelError(
            f"{name} is {list(past.shape)}, not [{batch}, {heads}, tokens, {size}]",
            "That is batch, heads, tokens and the size of a head.",
        )
    return np.concatenate([past, new], axis=2)


def _added(
    mask: Array | None,
    bias: Array | None,
    query: Array,
    key: Array,
    past: int | None,
    hides_by: float,
) -> Array | None:
    """Returns what is added to the scores, or None: see `added_mask`. Raises ModelError."""
    (batch, heads, queries, _), keys = query.shape, key.shape[2]
    added = added_mask(mask, (batch, queries, keys), past, hides_by)
    if bias is None:
        return added
    if (
        bias.ndim != 4
        or bias.shape[2:] != (queries, keys)
        or (bias.shape[0] not in (1, batch) or bias.shape[1] not in (1, heads))
    ):
        raise ModelError(
            f"attention_bias is {list(bias.shape)}, not {[batch, heads, queries, keys]}"
        )
    return widened(bias) if added is None else added + widened(bias)
