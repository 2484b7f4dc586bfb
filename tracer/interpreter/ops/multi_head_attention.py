"""MultiHeadAttention, Attention and QAttention, domain com.microsoft.

One product gives queries, keys and values of the last two, the fusions of BERT and GPT-2.
QAttention is what onnxruntime's quantiser makes of Attention.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.attention import (
    added_to_scores,
    check_added,
    check_past,
    check_pasts,
    grouped_product,
    joined_heads,
    split_heads,
    visible_shares,
)
from tracer.interpreter.numeric.tensors import widened
from tracer.interpreter.operators import MICROSOFT, Arguments, operator, parameters_of, shaped
from tracer.interpreter.ops.quantized import matmul_integer_to_float
from tracer.support.types import Array

Heads = tuple[Array, Array, Array]
"""Query, key and value as [batch, heads, tokens, size]."""
SHARED_BUFFER = "past and present that share a buffer are of onnxruntime's CUDA kernels"


def check_inputs(given: Arguments) -> None:
    """Raises ModelError for inputs of MultiHeadAttention that do not fit each other."""
    bias = given.bias
    if given.past_sequence_length is not None:  # the past has room for more tokens than there are
        return
    heads = q, k, v = _heads(given.query, given.key, given.value, given.num_heads)
    widths = [each.shape[1] * each.shape[3] for each in heads]
    if bias is not None and bias.shape != (sum(widths),):
        raise ModelError(f"the bias is {list(bias.shape)}, and the heads have {widths} channels")
    tokens = check_pasts(given.past_key, given.past_value, k, v)
    check_added(given.key_padding_mask, given.attention_bias, (*q.shape[:3], tokens + k.shape[2]))


def multi_head_operands(
    query: Array, key: Array | None = None, value: Array | None = None, bias: Array | None = None,
    key_padding_mask: Array | None = None, attention_bias: Array | None = None,
    past_key: Array | None = None, past_value: Array | None = None,
    past_sequence_length: Array | None = None, cache_indirection: Array | None = None,
    *, mask_filter_value: float = -10000.0, num_heads: int, unidirectional: int = 0,
) -> tuple[Heads, Array | None]:  # fmt: skip
    """Returns query, key and value as heads, and what is added to their scores.

    Query, key and value are [batch, tokens, channels], or packed: [batch, tokens, heads, 3, size],
    keys and values [batch, tokens, heads, 2, size]; or keys and values come as heads. Raises
    ModelError.
    """
    if past_sequence_length is not None or cache_indirection is not None:
        raise ModelError(SHARED_BUFFER, "Export with past and present of their own.")
    heads = list(_heads(query, key, value, num_heads))
    if bias is not None:
        widths = [each.shape[1] * each.shape[3] for each in heads]
        parts = np.split(bias, np.cumsum(widths)[:2])
        biased = 1 if key is not None and key.ndim == 4 else 3  # keys that are heads have theirs
        for place, part in enumerate(parts[:biased]):
            heads[place] = heads[place] + part.reshape(1, heads[place].shape[1], 1, -1)
    q, k, v = heads
    if past_key is not None and past_value is not None:
        k, v = after(past_key, k), after(past_value, v)
    before = k.shape[2] - heads[1].shape[2] if unidirectional else None
    shape = len(q), q.shape[2], k.shape[2]
    added = added_to_scores(key_padding_mask, attention_bias, shape, before, mask_filter_value)
    return (q, k, v), added


@operator("MultiHeadAttention", domain=MICROSOFT, check=check_inputs)
@parameters_of(multi_head_operands)
def multi_head_attention(*inputs: Any, scale: float = 0.0, **attributes: Any) -> tuple[Array, ...]:
    """The attention, the present key and value [batch, heads, tokens, size], and the scores."""
    heads, added = multi_head_operands(*inputs, **attributes)
    output, scores = attend(heads, added, scale)
    kind = heads[0].dtype
    return output.astype(kind, copy=False), *heads[1:], scores.astype(kind, copy=False)


def attend(heads: Heads, added: Array | None, scale: float) -> tuple[Array, Array]:
    """Returns the attention [batch, L, channels] and the scores, halves in float32."""
    query, key, value = map(widened, heads)
    factor = query.dtype.type(scale or 1 / np.sqrt(query.shape[-1]))
    scores = grouped_product(query, np.swapaxes(key, -1, -2)) * factor
    if added is not None:
        scores = scores + added
    return joined_heads(grouped_product(visible_shares(scores, None), value)), scores


def _heads(query: Array, key: Array | None, value: Array | None, count: int) -> Heads:
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


def after(past: Array, new: Array) -> Array:
    """Returns the tokens of the past, then the new ones."""
    return np.concatenate([past, new], axis=2)


def projected_operands(
    projected: Array, mask: Array | None, past: Array | None, bias: Array | None = None,
    widths: Sequence[int] = (),
    *, do_rotary: int = 0, mask_filter_value: float = -10000.0, num_heads: int,
    past_present_share_buffer: int = 0, unidirectional: int = 0,
) -> tuple[Heads, Array | None]:  # fmt: skip
    """Returns heads of queries, keys and values that are side by side, of `widths` or one width.

    Also returns what is added to their scores. Raises ModelError.
    """
    if past_present_share_buffer:
        raise ModelError(SHARED_BUFFER, "Export with past and present of their own.")
    if do_rotary:
        raise ModelError("do_rotary is 1, for which the operator has no tables of angles")
    parts = np.split(projected, np.cumsum(_widths(projected, widths))[:2], axis=-1)
    query, key, value = (split_heads(part, num_heads) for part in parts)
    if past is not None:
        key, value = after(past[0], key), after(past[1], value)
    before = key.shape[2] - query.shape[2] if unidirectional else None
    shape = len(query), query.shape[2], key.shape[2]
    added = added_to_scores(mask, bias, shape, before, mask_filter_value)
    return (query, key, value), added


@parameters_of(projected_operands)
def attended_projection(
    projected: Array, mask: Array | None, past: Array | None, bias: Array | None = None,
    widths: Sequence[int] = (), *, scale: float = 0.0, **attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    """Returns the attention, and the present where keys and values have one size."""
    heads, added = projected_operands(projected, mask, past, bias, widths, **attributes)
    output, _ = attend(heads, added, scale)
    whole = output.astype(heads[0].dtype, copy=False)
    return (whole, np.stack(heads[1:])) if heads[1].shape == heads[2].shape else (whole,)


def _widths(weights: Array, sizes: Sequence[int]) -> list[int]:
    """Returns the channels of queries, keys and values."""
    return list(sizes) or [weights.shape[-1] // 3] * 3


def check_projected(given: Arguments) -> None:
    """Raises ModelError for inputs of Attention that do not fit each other or the attributes."""
    input, weights, bias, past = given.input, given.weights, given.bias, given.past
    widths = _widths(weights, given.qkv_hidden_sizes)
    if input.ndim != 3 or weights.shape[0] != input.shape[-1] or sum(widths) != weights.shape[-1]:
        raise ModelError(
            f"weights {list(weights.shape)} do not take {list(input.shape)} to channels {widths}"
        )
    if bias is not None and bias.shape != weights.shape[-1:]:
        raise ModelError(
            f"the bias is {list(bias.shape)}, and the weights have {weights.shape[-1]} columns"
        )
    query, key, value = (
        split_heads(shaped(input.dtype, (*input.shape[:2], width)), given.num_heads)
        for width in widths
    )
    if given.past_present_share_buffer:  # the past has room for more tokens than there are
        return
    tokens = 0
    if past is not None:
        if past.ndim != 5 or past.shape[0] != 2:
            raise ModelError(f"past is {list(past.shape)}, not [2, batch, heads, tokens, size]")
        tokens = past.shape[3]
        for new in (key, value):
            check_past(past[0], new, "past")
    scores = (*query.shape[:3], tokens + key.shape[2])
    check_added(given.mask_index, given.attention_bias, scores)


@operator("Attention", domain=MICROSOFT, check=check_projected)
@parameters_of(attended_projection)
def attention(
    input: Array, weights: Array, bias: Array | None = None, mask_index: Array | None = None,
    past: Array | None = None, attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *, past_present_share_buffer: int = 0, qkv_hidden_sizes: Sequence[int] = (),
    rotary_embedding_dim: int = 0, **attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    """Projects the input to queries, keys and values; returns the attention and the present.

    `past` and present are [2, batch, heads, tokens, size], keys first; there is no present where
    keys and values have other sizes. Raises ModelError.
    """
    shares_buffer = past_present_share_buffer or int(past_sequence_length is not None)
    projected = products.matmul(input, weights)
    if bias is not None:
        projected = projected + bias
    return attended_projection(
        projected, mask_index, past, attention_bias, qkv_hidden_sizes,
        past_present_share_buffer=shares_buffer, **attributes,
    )  # fmt: skip


def check_quantized(given: Arguments) -> None:
    """Raises ModelError for inputs of QAttention that do not fit each other."""
    absent = {"attention_bias": None, "qkv_hidden_sizes": ()}
    check_projected(Arguments(**vars(given), **absent, weights=given.weight))
    columns = given.weight.shape[-1]
    for name, parameter in (("scale", given.weight_scale), ("zero_point", given.weight_zero_point)):
        if parameter is not None and parameter.size not in (1, columns):
            raise ModelError(
                f"weight_{name} is {list(parameter.shape)}, and the weights have {columns} columns",
                f"It is one number, or [{columns}].",
            )


@operator("QAttention", domain=MICROSOFT, check=check_quantized)
@parameters_of(attended_projection)
def quantized_attention(
    input: Array, weight: Array, bias: Array, input_scale: Array, weight_scale: Array,
    mask_index: Array | None = None, input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None, past: Array | None = None,
    **attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    """Attention of an input and weights of 8 bits, whose product is one of integers.

    Scale and zero point of the weights are one number, or one for each column. The attention
    itself is one of floats. Raises ModelError.
    """
    projected = matmul_integer_to_float(
        input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias
    )
    return attended_projection(projected, mask_index, past, **attributes)
