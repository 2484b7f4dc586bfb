"""Attention and QAttention, domain com.microsoft: one product gives queries, keys and values.

The fusions of BERT and GPT-2. QAttention is what onnxruntime's quantiser makes of Attention.
"""

from collections.abc import Sequence

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input, Shaped
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.heads import split_heads, split_shape
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.ops.dynamic_quantized import matmul_integer_to_float
from tracer.interpreter.ops.multi_head_attention import (
    SHARED_BUFFER,
    Heads,
    added_to_scores,
    after,
    attend,
    check_added,
    check_past,
)
from tracer.interpreter.registry import operator
from tracer.support.types import Array


def check_projected(
    input: Input,
    weights: Input,
    bias: Input | None = None,
    mask_index: Input | None = None,
    past: Input | None = None,
    attention_bias: Input | None = None,
    *,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] = (),
) -> None:
    """Raises ModelError for inputs of Attention that do not fit each other or the attributes."""
    widths = _widths(weights, qkv_hidden_sizes)
    if input.ndim != 3 or weights.shape[0] != input.shape[-1] or sum(widths) != weights.shape[-1]:
        raise ModelError(
            f"weights {list(weights.shape)} do not take {list(input.shape)} to channels {widths}"
        )
    if bias is not None and bias.shape != weights.shape[-1:]:
        raise ModelError(
            f"the bias is {list(bias.shape)}, and the weights have {weights.shape[-1]} columns"
        )
    query, key, value = (
        split_shape(Shaped(input.dtype, (*input.shape[:2], width)), num_heads) for width in widths
    )
    if past_present_share_buffer:  # the past has room for more tokens than there are
        return
    tokens = 0
    if past is not None:
        if past.ndim != 5 or past.shape[0] != 2:
            raise ModelError(f"past is {list(past.shape)}, not [2, batch, heads, tokens, size]")
        tokens = past.shape[3]
        for new in (key, value):
            check_past(Shaped(past.dtype, past.shape[1:]), new, "past")
    scores = (*query[:3], tokens + key[2])
    check_added(mask_index, attention_bias, scores)


def check_quantized(
    input: Input,
    weight: Input,
    bias: Input,
    weight_scale: Input,
    mask_index: Input | None = None,
    weight_zero_point: Input | None = None,
    past: Input | None = None,
    *,
    num_heads: int,
    past_present_share_buffer: int = 0,
) -> None:
    """Raises ModelError for inputs of QAttention that do not fit each other."""
    check_projected(
        input, weight, bias, mask_index, past, num_heads=num_heads,
        past_present_share_buffer=past_present_share_buffer,
    )  # fmt: skip
    columns = weight.shape[-1]
    for name, parameter in (("scale", weight_scale), ("zero_point", weight_zero_point)):
        if parameter is not None and parameter.size not in (1, columns):
            raise ModelError(
                f"weight_{name} is {list(parameter.shape)}, and the weights have {columns} columns",
                f"It is one number, or [{columns}].",
            )


@operator("Attention", domain=DOMAIN, check=check_projected)
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
    _refuse(past_present_share_buffer or past_sequence_length is not None, do_rotary)
    projected = products.matmul(input, weights)
    if bias is not None:
        projected = projected + bias
    heads = _heads(projected, num_heads, _widths(weights, qkv_hidden_sizes))
    return _attended(
        heads, mask_index, past, attention_bias, unidirectional, mask_filter_value, scale
    )


@operator("QAttention", domain=DOMAIN, check=check_quantized)
def quantized_attention(
    input: Array,
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, ...]:
    """Attention of an input and weights of 8 bits, whose product is one of integers.

    Scale and zero point of the weights are one number, or one for each column. The attention
    itself is one of floats. Raises ModelError.
    """
    projected = matmul_integer_to_float(
        input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias
    )
    return attended_projection(
        projected, mask_index, past, do_rotary=do_rotary, mask_filter_value=mask_filter_value,
        num_heads=num_heads, past_present_share_buffer=past_present_share_buffer, scale=scale,
        unidirectional=unidirectional,
    )  # fmt: skip


def attended_projection(
    projected: Array,
    mask: Array | None,
    past: Array | None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, ...]:
    """What QAttention returns for queries, keys and values side by side. Raises ModelError."""
    _refuse(past_present_share_buffer, do_rotary)
    heads = _heads(projected, num_heads, _widths(projected, ()))
    return _attended(heads, mask, past, None, unidirectional, mask_filter_value, scale)


def _refuse(shares_buffer: bool | int, do_rotary: int) -> None:
    if shares_buffer:
        raise ModelError(SHARED_BUFFER, "Export with past and present of their own.")
    if do_rotary:
        raise ModelError("do_rotary is 1, for which the operator has no tables of angles")


def _attended(
    heads: Heads,
    mask: Array | None,
    past: Array | None,
    bias: Array | None,
    unidirectional: int,
    hides_by: float,
    scale: float,
) -> tuple[Array, ...]:
    """Returns the attention, and the present where keys and values have one size."""
    query, key, value = heads
    if past is not None:
        key, value = after(past[0], key), after(past[1], value)
    before = key.shape[2] - query.shape[2] if unidirectional else None
    added = added_to_scores(mask, bias, query, key, before, hides_by)
    output, _ = attend((query, key, value), added, scale)
    whole = output.astype(query.dtype, copy=False)
    return (whole, np.stack([key, value])) if key.shape == value.shape else (whole,)


def _widths(weights: Input, sizes: Sequence[int]) -> list[int]:
    """Returns the channels of queries, keys and values."""
    return list(sizes) or [weights.shape[-1] // 3] * 3


def _heads(projected: Array, count: int, widths: Sequence[int]) -> Heads:
    """Returns the columns of queries, keys and values as heads."""
    parts = np.split(projected, np.cumsum(widths)[:2], axis=-1)
    q, k, v = (split_heads(part, count) for part in parts)
    return q, k, v
