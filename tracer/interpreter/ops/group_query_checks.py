"""What inputs GroupQueryAttention takes: shapes, lengths and attributes that fit each other."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input, value_of
from tracer.interpreter.numeric.heads import (
    Shape4,
    split_shape,
)
from tracer.interpreter.numeric.key_value_cache import (
    check_cache,
    check_storage,
)
from tracer.interpreter.ops.rotary_embedding import check_places, check_tables
from tracer.support.types import Array


def check_inputs(
    query: Input,
    key: Input | None = None,
    value: Input | None = None,
    past_key: Input | None = None,
    past_value: Input | None = None,
    seqlens_k: Input | None = None,
    total_sequence_length: Input | None = None,
    cos_cache: Input | None = None,
    sin_cache: Input | None = None,
    position_ids: Input | None = None,
    attention_bias: Input | None = None,
    head_sink: Input | None = None,
    k_scale: Input | None = None,
    v_scale: Input | None = None,
    q_norm_weight: Input | None = None,
    k_norm_weight: Input | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    sliding_window_cache: int = 0,
    v_quant_type: str = "NONE",
) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    heads = _head_shape(query, key, value, num_heads, kv_num_heads)
    batch, _, tokens, size = heads
    if (q_norm_weight is None) != (k_norm_weight is None):
        raise ModelError("q_norm_weight and k_norm_weight are both given, or neither")
    longest = _longest(total_sequence_length, tokens)
    pasts = _check_lengths(seqlens_k, longest, batch, tokens)
    if do_rotary:
        tables = (cos_cache, sin_cache)
        _check_rotary(tables, position_ids, pasts, tokens == longest, heads)
    _check_window(local_window_size, bool(causal), bool(sliding_window_cache))
    kept = local_window_size if sliding_window_cache else 0
    for past, kind, scale in (
        (past_key, k_quant_type, k_scale), (past_value, v_quant_type, v_scale),
    ):  # fmt: skip
        check_storage(kind, scale, kv_cache_bit_width, (kv_num_heads, size), past)
        bits = kv_cache_bit_width if kind != "NONE" else 0
        check_cache(past, bits, (batch, kv_num_heads, size), kept)
    _check_past(past_key, past_value, longest, tokens, kept)
    _check_scores(attention_bias, head_sink, (batch, num_heads, tokens, longest))


def _head_shape(
    query: Input, key: Input | None, value: Input | None, count: int, groups: int
) -> Shape4:
    """Returns the shape of the query as heads. Raises ModelError."""
    if groups < 1 or count % groups:
        raise ModelError(f"num_heads, {count}, is no multiple of kv_num_heads, {groups}")
    if key is None or value is None:
        if key is not None or value is not None:
            raise ModelError("key and value are both given, or both in the query")
        batch, _, tokens, size = split_shape(query, count + 2 * groups)
        return batch, count, tokens, size
    q, k, v = split_shape(query, count), split_shape(key, groups), split_shape(value, groups)
    expected = (q[0], groups, *q[2:])
    if k != expected or v != expected:
        raise ModelError(
            f"key and value, {list(key.shape)} and {list(value.shape)}, do not have the batch, the "
            f"tokens and the size of heads, {q[3]}, of the query, {list(query.shape)}"
        )
    return q


def _longest(total_sequence_length: Input | None, tokens: int) -> int | None:
    """Returns the tokens of the longest entry, past and new; None if they are not known."""
    total = value_of(total_sequence_length)
    if total is None:
        return None
    if total.size != 1:
        raise ModelError(f"total_sequence_length has {total.size} numbers, not one")
    longest = int(total.reshape(-1)[0])
    if longest < tokens:
        raise ModelError(f"total_sequence_length is {longest}, and there are {tokens} new tokens")
    return longest


def _check_lengths(
    seqlens_k: Input | None, longest: int | None, batch: int, tokens: int
) -> Array | None:
    """Returns the past tokens of each entry, if they are known. Raises ModelError."""
    if seqlens_k is not None and seqlens_k.size != batch:
        raise ModelError(f"seqlens_k is {list(seqlens_k.shape)}, and the batch has {batch} entries")
    lengths = value_of(seqlens_k)
    if lengths is None or longest is None:
        return None
    totals = lengths.reshape(-1).astype(np.int64) + 1
    least = 1 if tokens == longest else tokens
    if totals.size and not least <= totals.min() <= totals.max() <= longest:
        raise ModelError(
            f"seqlens_k is {lengths.reshape(-1).tolist()}",
            f"It is the number of tokens less 1: {least - 1} to {longest - 1} here.",
        )
    return pasts_of(totals, longest, tokens)


def _check_rotary(
    tables: tuple[Input | None, Input | None],
    position_ids: Input | None,
    pasts: Array | None,
    is_prompt: bool,
    heads: Shape4,
) -> None:
    """Refuses tables of other sizes than the heads, and positions beyond them."""
    cosines, sines = tables
    if cosines is None or sines is None:
        raise ModelError("do_rotary is 1, and cos_cache or sin_cache is left out")
    batch, _, tokens, size = heads
    check_tables(cosines, sines, size)
    given = value_of(position_ids)
    if pasts is None or (given is None and position_ids is not None):
        return
    places = places_of(given, pasts, tokens, is_prompt)
    if places.shape != (batch, tokens):
        raise ModelError(f"position_ids are {list(places.shape)}, not one for each token")
    check_places(places, cosines.shape[0])


def _check_window(size: int, causal: bool, kept: bool) -> None:
    if size > 0 and not causal:
        raise ModelError(f"local_window_size is {size}, and attention is not causal")
    if kept and size <= 0:
        raise ModelError("sliding_window_cache is 1, and there is no local_window_size")


def _check_past(
    past_key: Input | None, past_value: Input | None, longest: int | None, tokens: int, window: int
) -> None:
    """Refuses a cache that neither ends with the past nor has room for all tokens."""
    rows = [0 if past is None else past.shape[2] for past in (past_key, past_value)]
    if rows[0] != rows[1]:
        raise ModelError(f"past_key has {rows[0]} tokens, and past_value {rows[1]}")
    if longest is not None and not window and rows[0] < longest != rows[0] + tokens:
        raise ModelError(
            f"total_sequence_length is {longest}, the cache has {rows[0]} rows, and there are "
            f"{tokens} new tokens",
            "It is the sum of both, or at most the rows of a cache with room for all.",
        )


def _check_scores(
    bias: Input | None, head_sink: Input | None, scores: tuple[int, int, int, int | None]
) -> None:
    """Refuses a bias and a sink of other scores than [batch, heads, tokens, longest]."""
    batch, heads, tokens, longest = scores
    if bias is not None and (
        bias.ndim != 4
        or bias.shape[0] not in (1, batch)
        or bias.shape[1] not in (1, heads)
        or bias.shape[2] != tokens
        or longest not in (None, bias.shape[3])
    ):
        raise ModelError(
            f"attention_bias is {list(bias.shape)}, not {[batch, heads, tokens, longest]}",
            "That is batch or 1, heads or 1, new tokens and total_sequence_length.",
        )
    if head_sink is not None and head_sink.shape != (heads,):
        raise ModelError(f"head_sink is {list(head_sink.shape)}, and there are {heads} heads")


def places_of(position_ids: Array | None, pasts: Array, tokens: int, is_prompt: bool) -> Array:
    """Returns the position of each token. Of a prompt onnxruntime reads the first alone."""
    offsets = np.arange(tokens)
    if position_ids is None:
        return pasts[:, None] + offsets
    if is_prompt and position_ids.size:
        return np.broadcast_to(position_ids.reshape(-1)[0] + offsets, (len(pasts), tokens))
    return position_ids


def pasts_of(totals: Array, longest: int, tokens: int) -> Array:
    """Returns how many of the `totals` of entries are past.

    Without a past, entries of a batch may end in padding; with one, all tokens are real.
    """
    return np.zeros_like(totals) if tokens == longest else totals - tokens
