"""GroupQueryAttention against onnxruntime: caches, rotary positions, windows, quantised caches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import fused, normal, onnxruntime, quick
from tests.processors import with_vnni
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter

OUTPUTS = ("y", "present_key", "present_value")
ULPS = 16
"""Units in the last place of the largest value: both sides add terms in orders of their own."""

FLAGS = st.booleans()


def tables(rows, pairs, kind=np.float32):
    angles = np.arange(rows)[:, None] / 100 ** (np.arange(pairs) / pairs)
    return np.cos(angles).astype(kind), np.sin(angles).astype(kind)


def inputs(past=0, new=4, batch=1, heads=(4, 2), size=16, rows=None, totals=None, kind=np.float32):
    """Feeds by name, for `past` tokens in a cache of `rows`; `totals` of the entries."""
    count, groups = heads
    totals = np.full(batch, past + new) if totals is None else np.array(totals)
    rows = past if rows is None else rows
    cache = (batch, groups, rows, size)
    return {
        "query": normal(batch, new, count * size).astype(kind),
        "key": normal(batch, new, groups * size, seed=1).astype(kind),
        "value": normal(batch, new, groups * size, seed=2).astype(kind),
        "past_key": normal(*cache, seed=3).astype(kind) if rows else None,
        "past_value": normal(*cache, seed=4).astype(kind) if rows else None,
        "lengths": (totals - 1).astype(np.int32),
        "total": np.array([past + new], np.int32),
        **dict.fromkeys(("cos", "sin", "places", "bias", "sink", "k_scale", "v_scale")),
    }


def node(feeds, outputs=OUTPUTS, **attributes):
    attributes = {"num_heads": 4, "kv_num_heads": 2} | attributes
    return fused("GroupQueryAttention", feeds, outputs, **attributes)


def run(model, feeds):
    return Interpreter(model).run(None, {n: v for n, v in feeds.items() if v is not None})


def agree(feeds, outputs=OUTPUTS, **attributes):
    """Compares all outputs with onnxruntime's; codes of a cache bit for bit. Returns ours."""
    model = node(feeds, outputs, **attributes)
    ours, theirs = run(model, feeds), onnxruntime(model, feeds)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind in "iu":
            np.testing.assert_array_equal(a, b)
            continue
        unit = float(np.finfo(b.dtype).eps) * np.abs(b.astype(float)).max(initial=1)
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=0, atol=ULPS * unit)
    return ours


@quick
@given(
    st.sampled_from([(4, 2), (4, 1), (3, 3), (6, 2)]), st.sampled_from([16, 32]),
    st.sampled_from([(0, 4), (0, 1), (3, 1), (3, 2), (5, 4)]), st.sampled_from([0, 4, 7]),
    st.sampled_from(["no", "halves", "neighbours"]), FLAGS,
    st.sampled_from([np.float32, np.float16]), st.integers(1, 2),
)  # fmt: skip
def test_a_cache_and_rotary_positions(heads, size, tokens, spare, rotary, packed, kind, batch):
    past, new = tokens
    batch = 1 if past and new > 1 else batch  # onnxruntime has no other
    feeds = inputs(past, new, batch, heads, size, past + spare, kind=kind)
    attributes = {"num_heads": heads[0], "kv_num_heads": heads[1]}
    if rotary != "no":
        feeds["cos"], feeds["sin"] = tables(20, 8, kind)
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(rotary == "neighbours")}
    if packed:
        parts = (feeds[name] for name in ("query", "key", "value"))
        feeds |= {"query": np.concatenate(list(parts), -1), "key": None, "value": None}
    agree(feeds, **attributes)


@quick
@given(
    st.sampled_from([(0, 5), (4, 1), (3, 3)]), st.sampled_from([-1, 1, 2, 3]),
    st.sampled_from([0.0, 1.5]), FLAGS, FLAGS, st.sampled_from([None, (1, 1), (1, 4)]),
    st.sampled_from([0.0, 0.3]), st.sampled_from([0, 1, 2]),
)  # fmt: skip
def test_what_scores_are_made_of(tokens, window, softcap, smooth, sink, bias, scale, stage):
    past, new = tokens
    feeds = inputs(past, new)
    feeds["sink"] = normal(4, seed=5) if sink else None
    feeds["bias"] = None if bias is None else normal(*bias, new, past + new, seed=6)
    outputs = (*OUTPUTS, "scores") if stage else OUTPUTS
    agree(
        feeds, outputs, local_window_size=window, softcap=softcap, smooth_softmax=int(smooth),
        scale=scale, qk_output=stage,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [3, 8])
@pytest.mark.parametrize("totals", [[4, 4], [4, 2], [1, 4]])
def test_entries_of_a_batch_have_pasts_of_their_own(rows, totals):
    feeds = inputs(3, 1, 2, rows=rows, totals=totals)
    feeds["cos"], feeds["sin"] = tables(20, 8)
    feeds["bias"] = normal(2, 1, 1, 4, seed=6)
    agree(feeds, do_rotary=1)


@pytest.mark.parametrize("totals", [[4, 2], [3, 1]])
def test_prompts_end_in_padding(totals):
    agree(inputs(0, 4, 2, totals=totals))


@pytest.mark.parametrize("past", [0, 3])
def test_attention_to_later_tokens(past):
    agree(inputs(past, 2), causal=0)


@pytest.mark.parametrize(("past", "new", "places"), [
    (0, 4, [[5, 6, 7, 8], [9, 9, 9, 9]]), (3, 1, [[9], [2]]),
])  # fmt: skip
def test_positions_that_are_given(past, new, places):
    feeds = inputs(past, new, 2)
    feeds["cos"], feeds["sin"] = tables(20, 8)
    feeds["places"] = np.array(places)
    agree(feeds, do_rotary=1)


@with_vnni
@quick
@given(
    st.sampled_from([8, 4]), st.sampled_from(["PER_TENSOR", "PER_CHANNEL"]),
    st.sampled_from([(0, 4, 8), (3, 1, 3), (3, 1, 8), (3, 4, 3)]), FLAGS,
)  # fmt: skip
def test_a_quantised_cache(bits, kind, tokens, half):
    past, new, rows = tokens
    feeds = inputs(past, new, rows=rows, kind=np.float16 if half else np.float32)
    rng = np.random.default_rng(0)
    dtype, width = (np.int8, 16) if bits == 8 else (np.uint8, 8)
    info = np.iinfo(dtype)
    for name in ("past_key", "past_value"):
        feeds[name] = rng.integers(info.min, info.max, (1, 2, rows, width), dtype, endpoint=True)
    for seed, name in enumerate(("k_scale", "v_scale")):
        scales = np.random.default_rng(seed).uniform(0.01, 0.03, 32) * (16 if bits == 4 else 1)
        shape = (1, 2, 1, 16) if kind == "PER_CHANNEL" else (1,)
        feeds[name] = np.resize(scales, shape).astype(np.float32)
    agree(feeds, k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits)


@pytest.mark.parametrize(("past", "new", "rows", "window"), [
    (0, 3, 4, 4), (0, 6, 4, 3), (5, 1, 4, 4), (8, 1, 6, 4), (8, 3, 6, 4), (7, 9, 6, 4),
])  # fmt: skip
def test_a_cache_of_the_last_tokens(past, new, rows, window):
    """Rows beyond those that the definition fills, min(T, W) <= L <= min(T, C), are unspecified."""
    feeds = inputs(past, new, rows=rows)
    feeds["cos"], feeds["sin"] = tables(32, 8)
    attributes = {"local_window_size": window, "sliding_window_cache": 1, "do_rotary": 1}
    model = node(feeds, **attributes)
    gap, total = rows - window + 1, past + new
    filled = total if total <= rows else total - gap * -(-(total - rows) // gap)
    for a, b in zip(run(model, feeds), onnxruntime(model, feeds), strict=True):
        assert a.shape == b.shape
        cut = np.s_[:, :, :filled] if a.ndim == 4 else np.s_[:]
        np.testing.assert_allclose(a[cut], b[cut], rtol=0, atol=1e-5)


@quick
@given(st.integers(2, 7), st.integers(0, 3), st.sampled_from([-1, 2, 4]), FLAGS, FLAGS, FLAGS)
def test_a_prompt_is_its_tokens_one_by_one(tokens, spare, window, smooth, interleaved, shared):
    """The cache of each step is the present of the last, of a fixed size if `shared`."""
    size = 16
    whole = inputs(0, tokens, rows=tokens + spare if shared else 0)
    whole["cos"], whole["sin"] = tables(20, size // 2)
    attributes = {
        "do_rotary": 1, "rotary_interleaved": int(interleaved), "local_window_size": window,
        "smooth_softmax": int(smooth),
    }  # fmt: skip
    expected = run(node(whole, **attributes), whole)
    past = {name: whole[name] for name in ("past_key", "past_value")}
    rows = []
    for step in range(tokens):
        part = {name: whole[name][:, step : step + 1] for name in ("query", "key", "value")}
        counts = {"lengths": np.array([step], np.int32), "total": np.array([step + 1], np.int32)}
        feeds = whole | part | past | counts
        row, *present = run(node(feeds, **attributes), feeds)
        past = dict(zip(past, present, strict=True))
        rows.append(row)
    for ours, theirs in zip([np.concatenate(rows, 1), *past.values()], expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_queries_and_keys_may_be_normalised_first():
    """onnxruntime's CPU refuses the weights: there the normalisation is a node of its own."""
    feeds = inputs()
    feeds["cos"], feeds["sin"] = tables(20, 8)
    weights = {"q_norm": normal(16, seed=7), "k_norm": normal(16, seed=8)}
    normed = dict(feeds)
    for name, weight, heads in (("query", "q_norm", 4), ("key", "k_norm", 2)):
        x = {"x": feeds[name].reshape(1, 4, heads, 16), "scale": weights[weight]}
        rms = fused("SimplifiedLayerNormalization", x, domain="", epsilon=1e-6)
        normed[name] = onnxruntime(rms, x)[0].reshape(feeds[name].shape)
    expected = onnxruntime(node(normed, do_rotary=1), normed)
    for a, b in zip(
        run(node(feeds | weights, do_rotary=1), feeds | weights), expected, strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


CACHE = normal(1, 2, 3, 16)
ONE_SCALE = np.ones(1, np.float32)
BAD = {
    "heads that are not shared out evenly": ({}, {"kv_num_heads": 3}, "4, is no multiple of kv"),
    "no heads": ({}, {"kv_num_heads": 0}, "is no multiple of kv_num_heads, 0"),
    "an odd number of heads": ({}, {"num_heads": 5, "kv_num_heads": 5}, "do not fall into 5 heads"),
    "keys of other tokens": ({"key": normal(1, 2, 32)}, {}, "key and value, [1, 2, 32]"),
    "a key without a value": ({"value": None}, {}, "both given, or both in the query"),
    "a cache of other heads": (
        {"past_key": normal(1, 4, 3, 16)}, {}, "a cache of shape [1, 4, 3, 16]"),
    "a cache of another length": (
        {"past_value": normal(1, 2, 2, 16)}, {}, "past_key has 3 tokens, and past_value 2"),
    "a cache that is too short": (
        {"past_key": CACHE[:, :, :2], "past_value": CACHE[:, :, :2]}, {},
        "total_sequence_length is 4, the cache has 2 rows"),
    "a past without a cache": (
        {"past_key": None, "past_value": None}, {}, "total_sequence_length is 4, the cache has 0"),
    "lengths beyond the total": ({"lengths": np.array([4], np.int32)}, {}, "seqlens_k is [4]"),
    "lengths below the new tokens": (
        {"lengths": np.array([-1], np.int32)}, {}, "seqlens_k is [-1]"),
    "a total that neither fills nor extends the cache": (
        {"total": np.array([5], np.int32), "lengths": np.array([4], np.int32)}, {},
        "total_sequence_length is 5, the cache has 3 rows, and there are 1 new tokens"),
    "lengths of another batch": ({"lengths": np.array([3, 3], np.int32)}, {}, "the batch has 1"),
    "a total below the new tokens": (
        {"total": np.array([0], np.int32)}, {}, "total_sequence_length is 0"),
    "rotary positions without tables": ({}, {"do_rotary": 1}, "cos_cache or sin_cache is left out"),
    "a table that is too short": (
        dict(zip(("cos", "sin"), tables(2, 8), strict=True)), {"do_rotary": 1},
        "positions 3 to 3, and a table of 2"),
    "a bias of other keys": ({"bias": normal(1, 1, 1, 3)}, {}, "attention_bias is [1, 1, 1, 3]"),
    "a sink too few": ({"sink": normal(3)}, {}, "head_sink is [3], and there are 4 heads"),
    "a window of no causal attention": (
        {}, {"causal": 0, "local_window_size": 2}, "attention is not causal"),
    "a window larger than its cache": (
        {}, {"sliding_window_cache": 1, "local_window_size": 4}, "smaller than its window, 4"),
    "an unknown quantisation": ({}, {"k_quant_type": "PER_ROW"}, "quantisation is 'PER_ROW'"),
    "a quantised cache of floats": (
        {"k_scale": ONE_SCALE}, {"k_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8},
        "a cache of 8 bits in float32"),
    "codes without a quantisation": (
        {"past_key": CACHE.astype(np.int8)}, {}, "a cache of int8 without k_quant_type"),
    "codes without scales": (
        {"past_key": CACHE.astype(np.int8)},
        {"k_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}, "no scales for a cache"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "attributes", "reason"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_told_with_the_node(changes, attributes, reason):
    feeds = inputs(3, 1) | changes
    with pytest.raises(ModelError) as caught:
        run(node(feeds, **attributes), feeds)
    assert "node 'node' (com.microsoft.GroupQueryAttention" in str(caught.value)
    assert reason in str(caught.value)
