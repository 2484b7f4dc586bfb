"""GroupQueryAttention, domain com.microsoft: attention with a cache of keys and values.

Entries of a batch have pasts of their own, so each is computed by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer.interpreter.numeric.half_types import widened
from tracer.interpreter.numeric.heads import (
    grouped_product,
    joined_heads,
    split_heads,
    visible_shares,
)
from tracer.interpreter.numeric.key_value_cache import (
    Cache,
    cache_of,
    storage_of,
)
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.ops.group_query_checks import check_inputs, pasts_of, places_of
from tracer.interpreter.ops.normalization import rms_normalization
from tracer.interpreter.ops.rotary_embedding import rotated, rows_at
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Heads = tuple[Array, Array, Array]
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
        products = grouped_product(query[None], np.swapaxes(keys, -1, -2)[None])[0]
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


@operator("GroupQueryAttention", domain=DOMAIN, check=check_inputs)
def group_query_attention(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Array, ...]:
    """The attention [N, L, heads * size], the present key and value, and scores or shares.

    `seqlens_k` is the number of tokens of each entry less 1, `total_sequence_length` that of the
    longest.
    """
    heads = _normed(
        _heads(query, key, value, num_heads, kv_num_heads),
        (q_norm_weight, k_norm_weight), qk_norm_epsilon,
    )  # fmt: skip
    batch, _, tokens, size = heads[0].shape
    longest = int(total_sequence_length.reshape(-1)[0])
    totals = seqlens_k.reshape(-1).astype(np.int64) + 1
    pasts = pasts_of(totals, longest, tokens)
    if do_rotary:
        places = places_of(position_ids, pasts, tokens, tokens == longest)
        heads = _turned(heads, (cos_cache, sin_cache), places, bool(rotary_interleaved))
    window = max(local_window_size, 0)
    shape = (batch, kv_num_heads, size)
    caches = []
    for past, kind, steps in (
        (past_key, k_quant_type, k_scale),
        (past_value, v_quant_type, v_scale),
    ):
        storage = storage_of(kind, steps, kv_cache_bit_width, shape[1:])
        kept = window if sliding_window_cache else 0
        caches.append(cache_of(past, storage, shape, longest, kept))
    bias = attention_bias
    if bias is not None:
        bias = np.broadcast_to(bias, (batch, num_heads, tokens, longest))
    sink = _sink(head_sink, bool(smooth_softmax), num_heads)
    rule = _Rule(scale or 1 / np.sqrt(size), softcap, bool(causal), window, sink)
    entries = [
        _entry([each[i] for each in heads], caches, rule, None if bias is None else bias[i], i,
               int(pasts[i]), int(totals[i]), longest)
        for i in range(batch)
    ]  # fmt: skip
    output, keys, values, *stages = map(np.stack, zip(*entries, strict=True))
    stage = stages[0 if qk_output == 1 else 1]
    whole = joined_heads(output).astype(query.dtype, copy=False)
    return whole, keys, values, stage.astype(query.dtype, copy=False)


def _entry(
    heads: Sequence[Array],
    caches: Sequence[Cache],
    rule: _Rule,
    bias: Array | None,
    index: int,
    past: int,
    total: int,
    longest: int,
) -> tuple[Array, ...]:
    """Returns output, present key, present value, scores and shares of an entry of the batch.

    `past` of its `total` tokens are in the cache; the longest entry has `longest`.
    """
    stored = [
        cache.extended(index, new, past) for cache, new in zip(caches, heads[1:], strict=True)
    ]
    keys, values = (cache.storage.read(each) for cache, each in zip(caches, stored, strict=True))
    first = past - caches[0].kept(past)
    places = first + np.arange(keys.shape[1])
    columns = None if bias is None else widened(bias[..., first : first + len(places)])
    query = widened(heads[0])
    scores = rule.scores(query, keys, columns)
    visible = rule.visible(past + np.arange(query.shape[1]), places, total)
    shares = visible_shares(scores, visible, rule.sink)
    output = grouped_product(shares[None], values[None])[0]
    presents = (
        cache.present(each, past, total) for cache, each in zip(caches, stored, strict=True)
    )
    shown = np.where(visible, scores, np.float32(0))
    stages = (_spread(each, first, longest) for each in (shown, shares))
    return output, *presents, *stages


def _spread(stage: Array, first: int, longest: int) -> Array:
    """Returns scores [heads, L, T] in columns by position, 0 for positions outside the cache."""
    spread = np.zeros((*stage.shape[:2], longest), stage.dtype)
    spread[..., first : first + stage.shape[-1]] = stage
    return spread


def _heads(query: Array, key: Array | None, value: Array | None, count: int, groups: int) -> _Heads:
    """Returns query, key and value as heads; the query may hold all three."""
    if key is None or value is None:
        packed = split_heads(query, count + 2 * groups)
        q, k, v = np.split(packed, [count, count + groups], axis=1)
        return q, k, v
    return split_heads(query, count), split_heads(key, groups), split_heads(value, groups)


def _normed(heads: _Heads, weights: tuple[Array | None, Array | None], epsilon: float) -> _Heads:
    """Returns heads whose queries and keys are divided by their root mean squares, if weighted."""
    query, key, value = heads
    first, second = weights
    if first is None or second is None:
        return heads
    return (
        rms_normalization(query, first, epsilon=epsilon),
        rms_normalization(key, second, epsilon=epsilon),
        value,
    )


def _turned(
    heads: _Heads, tables: tuple[Array | None, Array | None], places: Array, interleaved: bool
) -> _Heads:
    """Returns heads whose queries and keys are turned by their positions."""
    query, key, value = heads
    cosines, sines = (rows_at(table, places) for table in tables if table is not None)
    turned = (rotated(each, cosines, sines, interleaved) for each in (query, key))
    return next(turned), next(turned), value


def _sink(head_sink: Array | None, smooth: bool, heads: int) -> Array | None:
    """Returns a score [heads, 1, 1] that takes a share and gives nothing."""
    if head_sink is None:
        return np.zeros((1, 1, 1), np.float32) if smooth else None
    return widened(head_sink).reshape(heads, 1, 1)
