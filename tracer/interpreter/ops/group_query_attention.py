"""GroupQueryAttention, domain com.microsoft: attention with a cache of keys and values.

Entries of a batch have pasts of their own, so each is computed by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import attention
from tracer.interpreter.numeric.tensors import widened
from tracer.interpreter.operators import MICROSOFT, Arguments, operator, value_of
from tracer.interpreter.ops.normalization import rms_normalization
from tracer.interpreter.ops.rotary_embedding import check_places, check_tables, rotated, rows_at
from tracer.support.types import Array

Heads = tuple[Array, Array, Array]
"""Query, key and value as [batch, heads, tokens, size]."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a score is, and which keys a query sees: all, or the `window` last; 0 is no window."""

    scale: float
    softcap: float
    causal: bool
    window: int
    sink: Array | None

    def scores(self, query: Array, keys: Array, bias: Array | None) -> Array:
        """Returns the scores [heads, L, T] of an entry."""
        products = attention.grouped_product(query[None], np.swapaxes(keys, -1, -2)[None])[0]
        scores = products * query.dtype.type(self.scale)
        if self.softcap:
            scores = np.tanh(scores / self.softcap) * query.dtype.type(self.softcap)
        return scores if bias is None else scores + bias

    def visible(self, queries: Array, keys: Array, total: int) -> Array:
        """Returns which keys the queries see, both by position, of an entry of `total` tokens."""
        distance = queries[:, None] - keys
        visible = np.broadcast_to(keys < total, distance.shape)
        if self.causal:
            visible = visible & (distance >= 0)
        return visible & (distance < self.window) if self.window else visible


def check_inputs(given: Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    groups, window, bias = given.kv_num_heads, given.local_window_size, given.attention_bias
    q, _, _ = grouped_heads(given.query, given.key, given.value, given.num_heads, groups)
    batch, heads, tokens, size = q.shape
    if (given.q_norm_weight is None) != (given.k_norm_weight is None):
        raise ModelError("q_norm_weight and k_norm_weight are both given, or neither")
    longest, pasts = _lengths(given, batch, tokens)
    if given.do_rotary:
        _check_rotary(given, pasts, tokens == longest, q.shape)
    if window > 0 and not given.causal:
        raise ModelError(f"local_window_size is {window}, and attention is not causal")
    if given.sliding_window_cache and window <= 0:
        raise ModelError("sliding_window_cache is 1, and there is no local_window_size")
    kept = window if given.sliding_window_cache else 0
    for past, kind, scale in (
        (given.past_key, given.k_quant_type, given.k_scale),
        (given.past_value, given.v_quant_type, given.v_scale),
    ):
        storage = attention.storage_of(kind, scale, given.kv_cache_bit_width, (groups, size), past)
        attention.cache_of(past, storage, (batch, groups, size), 0, kept)
    rows = [0 if each is None else each.shape[2] for each in (given.past_key, given.past_value)]
    if rows[0] != rows[1]:
        raise ModelError(f"past_key has {rows[0]} tokens, and past_value {rows[1]}")
    if longest is not None and not kept and rows[0] < longest != rows[0] + tokens:
        raise ModelError(
            f"total_sequence_length is {longest}, the cache has {rows[0]} rows, and there are "
            f"{tokens} new tokens",
            "It is the sum of both, or at most the rows of a cache with room for all.",
        )
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
    sink = given.head_sink
    if sink is not None and sink.shape != (heads,):
        raise ModelError(f"head_sink is {list(sink.shape)}, and there are {heads} heads")


@operator("GroupQueryAttention", domain=MICROSOFT, check=check_inputs)
def group_query_attention(
    query: Array, key: Array | None, value: Array | None, past_key: Array | None,
    past_value: Array | None, seqlens_k: Array, total_sequence_length: Array,
    cos_cache: Array | None = None, sin_cache: Array | None = None,
    position_ids: Array | None = None, attention_bias: Array | None = None,
    head_sink: Array | None = None, k_scale: Array | None = None, v_scale: Array | None = None,
    q_norm_weight: Array | None = None, k_norm_weight: Array | None = None,
    *, causal: int = 1, do_rotary: int = 0, k_quant_type: str = "NONE", kv_cache_bit_width: int = 0,
    kv_num_heads: int, local_window_size: int = -1, num_heads: int, qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0, rotary_interleaved: int = 0, scale: float = 0.0,
    sliding_window_cache: int = 0, smooth_softmax: int = 0, softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Array, ...]:  # fmt: skip
    """The attention [N, L, heads * size], the present key and value, and scores or shares.

    `seqlens_k` is the number of tokens of each entry less 1, `total_sequence_length` that of the
    longest.
    """
    q, k, v = grouped_heads(query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = rms_normalization(q, q_norm_weight, epsilon=qk_norm_epsilon)
        k = rms_normalization(k, k_norm_weight, epsilon=qk_norm_epsilon)
    batch, _, tokens, size = q.shape
    longest = int(total_sequence_length.reshape(-1)[0])
    totals = seqlens_k.reshape(-1).astype(np.int64) + 1
    pasts = pasts_of(totals, longest, tokens)
    if do_rotary:
        places = places_of(position_ids, pasts, tokens, tokens == longest)
        cosines, sines = (rows_at(t, places) for t in (cos_cache, sin_cache) if t is not None)
        q, k = (rotated(each, cosines, sines, bool(rotary_interleaved)) for each in (q, k))
    window = max(local_window_size, 0)
    caches = []
    stored = (past_key, k_quant_type, k_scale), (past_value, v_quant_type, v_scale)
    for past, kind, steps in stored:
        storage = attention.storage_of(kind, steps, kv_cache_bit_width, (kv_num_heads, size), past)
        kept = window if sliding_window_cache else 0
        caches.append(attention.cache_of(past, storage, (batch, kv_num_heads, size), longest, kept))
        limits.allow(caches[-1].shape, np.float32 if past is None else past.dtype)
    bias = attention_bias
    if bias is not None:
        bias = np.broadcast_to(bias, (batch, num_heads, tokens, longest))
    sink = np.zeros((1, 1, 1), np.float32) if smooth_softmax else None
    if head_sink is not None:
        sink = widened(head_sink).reshape(num_heads, 1, 1)
    rule = _Rule(scale or 1 / np.sqrt(size), softcap, bool(causal), window, sink)
    entries = [
        _entry((q[i], k[i], v[i]), caches, rule, None if bias is None else bias[i], i,
               int(pasts[i]), int(totals[i]), longest)
        for i in range(batch)
    ]  # fmt: skip
    output, keys, values, *stages = map(np.stack, zip(*entries, strict=True))
    stage = stages[0 if qk_output == 1 else 1]
    whole = attention.joined_heads(output).astype(query.dtype, copy=False)
    return whole, keys, values, stage.astype(query.dtype, copy=False)


def _entry(
    heads: Heads, caches: Sequence[attention.Cache], rule: _Rule, bias: Array | None, index: int,
    past: int, total: int, longest: int,
) -> tuple[Array, ...]:  # fmt: skip
    """Returns output, present key, present value, scores and shares of an entry of the batch.

    `past` of its `total` tokens are in the cache; the longest entry has `longest`.
    """
    stored = [
        cache.extended(index, new, past) for cache, new in zip(caches, heads[1:], strict=True)
    ]
    keys, values = (cache.storage.read(each) for cache, each in zip(caches, stored, strict=True))
    first = past - caches[0].rows_kept(past)
    places = first + np.arange(keys.shape[1])
    columns = None if bias is None else widened(bias[..., first : first + len(places)])
    query = widened(heads[0])
    scores = rule.scores(query, keys, columns)
    visible = rule.visible(past + np.arange(query.shape[1]), places, total)
    shares = attention.visible_shares(scores, visible, rule.sink)
    output = attention.grouped_product(shares[None], values[None])[0]
    presents = (
        cache.present(each, past, total) for cache, each in zip(caches, stored, strict=True)
    )
    shown = np.where(visible, scores, np.float32(0))
    stages = []
    for stage in (shown, shares):  # in columns by position, 0 outside the cache
        stages.append(np.zeros((*stage.shape[:2], longest), stage.dtype))
        stages[-1][..., first : first + stage.shape[-1]] = stage
    return output, *presents, *stages


def grouped_heads(
    query: Array, key: Array | None, value: Array | None, count: int, groups: int
) -> Heads:
    """Returns query, key and value as heads; the query may hold all three. Raises ModelError."""
    if groups < 1 or count % groups:
        raise ModelError(f"num_heads, {count}, is no multiple of kv_num_heads, {groups}")
    if key is None or value is None:
        if key is not None or value is not None:
            raise ModelError("key and value are both given, or both in the query")
        packed = attention.split_heads(query, count + 2 * groups)
        q, k, v = np.split(packed, [count, count + groups], axis=1)
        return q, k, v
    q = attention.split_heads(query, count)
    k, v = (attention.split_heads(each, groups) for each in (key, value))
    expected = (len(q), groups, *q.shape[2:])
    if k.shape != expected or v.shape != expected:
        raise ModelError(
            f"key and value, {list(key.shape)} and {list(value.shape)}, do not have the batch, the "
            f"tokens and the size of heads, {q.shape[3]}, of the query, {list(query.shape)}"
        )
    return q, k, v


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


def _lengths(given: Arguments, batch: int, tokens: int) -> tuple[int | None, Array | None]:
    """Returns the tokens of the longest entry, past and new, and the past tokens of each.

    None stands for what is not known. Raises ModelError.
    """
    seqlens_k, total = given.seqlens_k, value_of(given.total_sequence_length)
    longest = None
    if total is not None:
        if total.size != 1:
            raise ModelError(f"total_sequence_length has {total.size} numbers, not one")
        longest = int(total.reshape(-1)[0])
        if longest < tokens:
            raise ModelError(
                f"total_sequence_length is {longest}, and there are {tokens} new tokens"
            )
    if seqlens_k is not None and seqlens_k.size != batch:
        raise ModelError(f"seqlens_k is {list(seqlens_k.shape)}, and the batch has {batch} entries")
    lengths = value_of(seqlens_k)
    if lengths is None or longest is None:
        return longest, None
    totals = lengths.reshape(-1).astype(np.int64) + 1
    least = 1 if tokens == longest else tokens
    if totals.size and not least <= totals.min() <= totals.max() <= longest:
        raise ModelError(
            f"seqlens_k is {lengths.reshape(-1).tolist()}",
            f"It is the number of tokens less 1: {least - 1} to {longest - 1} here.",
        )
    return longest, pasts_of(totals, longest, tokens)


def _check_rotary(
    given: Arguments, pasts: Array | None, is_prompt: bool, heads: Sequence[int]
) -> None:
    """Refuses tables of other sizes than the heads, and positions beyond them."""
    cosines, sines, position_ids = given.cos_cache, given.sin_cache, given.position_ids
    if cosines is None or sines is None:
        raise ModelError("do_rotary is 1, and cos_cache or sin_cache is left out")
    batch, _, tokens, size = heads
    check_tables(cosines, sines, size)
    ids = value_of(position_ids)
    if pasts is None or (ids is None and position_ids is not None):
        return
    places = places_of(ids, pasts, tokens, is_prompt)
    if places.shape != (batch, tokens):
        raise ModelError(f"position_ids are {list(places.shape)}, not one for each token")
    check_places(places, cosines.shape[0])
