"""Attention, MultiHeadAttention and RotaryEmbedding of com.microsoft against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import fused, normal, onnxruntime, quick
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter

FLAGS = st.booleans()
MASKS = st.sampled_from(["none", "ends", "ends and starts", "keys", "queries and keys"])
ULPS = 32
"""Units in the last place of the largest value: both sides add terms in orders of their own."""


def run(model, feeds):
    return Interpreter(model).run(None, {n: v for n, v in feeds.items() if v is not None})


def agree(model, feeds):
    for a, b in zip(run(model, feeds), onnxruntime(model, feeds), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        unit = float(np.finfo(b.dtype).eps) * np.abs(b.astype(float)).max(initial=1)
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=0, atol=ULPS * unit)


def mask_of(form, batch, queries, keys, causal=False):
    """A mask that lets each query see a key; where `causal`, the first."""
    rng = np.random.default_rng(0)
    ends = rng.integers(1, keys + 1, batch)
    starts = np.zeros(batch, int) if causal else rng.integers(0, keys, batch) % ends
    masks = {
        "none": None,
        "ends": ends,
        "ends and starts": np.concatenate([ends, starts]),
        "keys": rng.integers(0, 2, (batch, keys)),
        "queries and keys": rng.integers(0, 2, (batch, queries, keys)),
    }
    mask = masks[form]
    if mask is not None and mask.ndim > 1:
        mask[..., 0] = 1
    return None if mask is None else mask.astype(np.int32)


def packed(batch=2, new=4, past=0, sizes=(16, 16, 16), mask=None, bias=None):
    """Feeds of Attention with two heads."""
    columns = sum(sizes)
    return {
        "x": normal(batch, new, 12),
        "weights": normal(12, columns, seed=1) / np.float32(3),
        "shift": normal(columns, seed=2),  # without it onnxruntime 1.31.1 dies
        "mask": mask,
        "past": normal(2, batch, 2, past, sizes[0] // 2, seed=3) if past else None,
        "bias": bias,
    }


@quick
@given(MASKS, st.sampled_from([(4, 0), (4, 3), (1, 3), (1, 0)]), FLAGS, FLAGS,
       st.sampled_from([0.0, 0.2]), st.sampled_from([-10000.0, -2.0]))  # fmt: skip
def test_attention_of_bert_and_gpt(form, tokens, causal, biased, scale, hides_by):
    new, past = tokens
    keys = past + new
    bias = normal(1, 2, new, keys, seed=4) if biased and not past else None  # not both there
    feeds = packed(new=new, past=past, mask=mask_of(form, 2, new, keys, causal), bias=bias)
    model = fused(
        "Attention", feeds, ("y", "present"), num_heads=2, unidirectional=int(causal), scale=scale,
        mask_filter_value=hides_by,
    )  # fmt: skip
    agree(model, feeds)


@quick
@given(MASKS, st.sampled_from([(4, 0), (4, 3), (1, 3)]), FLAGS, FLAGS, FLAGS)
def test_attention_of_a_quantised_bert(form, tokens, causal, per_column, zeros):
    new, past = tokens
    rng, count = np.random.default_rng(new), [48] if per_column else []
    feeds = {
        "x": rng.integers(0, 256, (2, new, 12), np.uint8),
        "weights": rng.integers(-64, 64, (12, 48), np.int8),
        "shift": normal(48, seed=2),
        "x_scale": np.array(0.02, np.float32),
        "w_scale": rng.uniform(0.01, 0.02, count).astype(np.float32),
        "mask": mask_of(form, 2, new, past + new, causal),
        "x_zero": np.array(100, np.uint8),
        "w_zero": np.asarray(rng.integers(-4, 4, count), np.int8) if zeros else None,
        "past": normal(2, 2, 2, past, 8, seed=3) if past else None,
    }
    fed = {name: feeds[name] for name in ("x", "mask", "past") if feeds[name] is not None}
    stored = [name for name in feeds if name not in fed and feeds[name] is not None]
    model = fused("QAttention", feeds, ("y", "present"), stored, num_heads=2,
                  unidirectional=int(causal))  # fmt: skip
    agree(model, fed)


@pytest.mark.parametrize("causal", [0, 1])
def test_a_query_that_sees_no_key_sees_all_by_their_scores(causal):
    """A float32 of 10,000 has steps of 1/1024: scores, and so shares, are that exact."""
    feeds = packed(mask=np.zeros((2, 4), np.int32))
    model = fused("Attention", feeds, num_heads=2, unidirectional=causal)
    (ours,), (theirs,) = run(model, feeds), onnxruntime(model, feeds)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-3)
    if not causal:
        seen = feeds | {"mask": np.ones((2, 4), np.int32)}
        np.testing.assert_allclose(run(model, seen)[0], ours, rtol=0, atol=2e-3)


@pytest.mark.parametrize("sizes", [(16, 16, 24), (24, 24, 16)])
def test_values_of_another_size(sizes):
    feeds = packed(sizes=sizes)
    agree(fused("Attention", feeds, ("y",), num_heads=2, qkv_hidden_sizes=list(sizes)), feeds)


def test_a_mask_of_cumulated_lengths_says_what_its_first_numbers_say():
    mask = np.array([4, 2, 0, 4, 6, 0, 4, 6], np.int32)
    agree(fused("Attention", packed(mask=mask), num_heads=2), packed(mask=mask))


def test_a_mask_of_all_positions_is_read_at_these():
    """onnxruntime's CPU has no kernel for [batch, 1, M, M]: the part that counts has a form of its
    own, [batch, L, T]."""
    whole = np.random.default_rng(0).integers(0, 2, (2, 1, 9, 9)).astype(np.int32)
    whole[..., 0] = 1
    feeds = packed(past=3, mask=whole)
    part = feeds | {"mask": np.ascontiguousarray(whole[:, 0, 3:7, :7])}
    ours, _ = run(fused("Attention", feeds, ("y", "present"), num_heads=2), feeds)
    theirs, _ = onnxruntime(fused("Attention", part, ("y", "present"), num_heads=2), part)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_attention_without_a_bias_is_attention_with_a_bias_of_0():
    feeds = packed()
    feeds["shift"] = np.zeros(48, np.float32)
    (theirs,) = onnxruntime(fused("Attention", feeds, num_heads=2), feeds)
    feeds = {name: feeds[name] for name in ("x", "weights")}
    np.testing.assert_allclose(
        run(fused("Attention", feeds, num_heads=2), feeds)[0], theirs, rtol=0, atol=1e-5
    )


def split(batch=2, new=4, keys=4, past=0, value_size=8, layout="channels"):
    """Feeds of MultiHeadAttention with two heads of 8 channels."""
    key = {"channels": (batch, keys, 16), "heads": (batch, 2, keys, 8)}[layout]
    value = (*key[:-1], value_size * (2 if layout == "channels" else 1))
    return {
        "query": normal(batch, new, 16),
        "key": normal(*key, seed=1),
        "value": normal(*value, seed=2),
        "shift": None,
        "mask": None,
        "bias": None,
        "past_key": normal(batch, 2, past, 8, seed=5) if past else None,
        "past_value": normal(batch, 2, past, value_size, seed=6) if past else None,
    }


PRESENT = ("y", "present_key", "present_value")


@quick
@given(
    st.sampled_from(["none", "ends", "keys", "queries and keys"]),
    st.sampled_from([(4, 4, 0), (4, 4, 3), (1, 1, 3), (2, 6, 0), (5, 2, 0)]), FLAGS, FLAGS, FLAGS,
    st.sampled_from([8, 12]), st.sampled_from([0.0, 0.2]),
)  # fmt: skip
def test_attention_of_several_heads(form, tokens, causal, shifted, biased, value_size, scale):
    new, keys, past = tokens
    feeds = split(new=new, keys=keys, past=past, value_size=8 if past else value_size)
    if shifted:
        feeds["shift"] = normal(32 + feeds["value"].shape[-1], seed=3)
    feeds["mask"] = mask_of(form, 2, new, past + keys, causal)
    feeds["bias"] = normal(2, 1, new, past + keys, seed=4) if biased else None
    model = fused(
        "MultiHeadAttention", feeds, PRESENT, num_heads=2, unidirectional=int(causal), scale=scale
    )
    agree(model, feeds)


@pytest.mark.parametrize("shifted", [False, True])
def test_keys_that_come_as_heads(shifted):
    feeds = split(keys=5, layout="heads")
    feeds["shift"] = normal(48, seed=3) if shifted else None
    agree(fused("MultiHeadAttention", feeds, PRESENT, num_heads=2), feeds)


def test_the_scores_are_those_before_the_softmax():
    feeds = split()
    feeds["mask"] = mask_of("keys", 2, 4, 4)
    model = fused("MultiHeadAttention", feeds, ("y", "", "", "scores"), num_heads=2)
    for output in model.graph.output:
        output.type.tensor_type.elem_type = 1
    agree(model, feeds)


@pytest.mark.parametrize("parts", [2, 3])
def test_packed_heads_are_the_heads_they_pack(parts):
    """onnxruntime's CPU has no kernel for packed heads."""
    feeds = split()
    (theirs,) = onnxruntime(fused("MultiHeadAttention", feeds, num_heads=2), feeds)
    names = ("query", "key", "value")[3 - parts :]
    whole = np.stack([feeds[name].reshape(2, 4, 2, 8) for name in names], axis=3)
    packed_feeds = {"query": whole} if parts == 3 else {"query": feeds["query"], "key": whole}
    (ours,) = run(fused("MultiHeadAttention", packed_feeds, num_heads=2), packed_feeds)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@quick
@given(
    st.sampled_from([np.float32, np.float16]), FLAGS, st.sampled_from([(0, 0), (8, 4), (16, 4)]),
    FLAGS, FLAGS, st.integers(1, 5),
)  # fmt: skip
def test_rotary_positions(kind, interleaved, dims, as_heads, each, tokens):
    rotated, heads = dims
    angles = np.arange(20)[:, None] / 100 ** (np.arange((rotated or 16) // 2) / 8)
    places = np.random.default_rng(0).integers(0, 20, (2, tokens)) if each else np.array([3])
    feeds = {
        "x": normal(*((2, 4, tokens, 16) if as_heads else (2, tokens, 64))).astype(kind),
        "places": places, "cos": np.cos(angles).astype(kind), "sin": np.sin(angles).astype(kind),
    }  # fmt: skip
    model = fused(
        "RotaryEmbedding", feeds, interleaved=int(interleaved), rotary_embedding_dim=rotated,
        num_heads=heads,
    )  # fmt: skip
    agree(model, feeds)


def attention_case(attributes=None, **changes):
    return "Attention", packed() | changes, attributes or {}


def heads_case(attributes=None, **changes):
    return "MultiHeadAttention", split() | changes, attributes or {}


def rotary_case(attributes=None, **changes):
    table = normal(9, 8)
    feeds = {"x": normal(2, 4, 64), "places": np.zeros(1, np.int64), "cos": table, "sin": table}
    return "RotaryEmbedding", feeds | changes, {"num_heads": 4} | (attributes or {})


BAD = {
    "weights of another input": (
        attention_case(weights=normal(11, 48)), "weights [11, 48] do not take [2, 4, 12]"),
    "channels that fall into no heads": (
        attention_case({"num_heads": 5}), "16 channels do not fall into 5 heads"),
    "a bias of other columns": (attention_case(shift=normal(47)), "the bias is [47]"),
    "a mask of another batch": (
        attention_case(mask=np.ones(3, np.int32)), "a mask of shape [3] for 2 entries"),
    "a past of other heads": (
        attention_case(past=normal(2, 2, 3, 1, 8)), "past is [2, 3, 1, 8], not [2, 2, tokens, 8]"),
    "a past of one part": (attention_case(past=normal(1, 2, 2, 1, 8)), "past is [1, 2, 2, 1, 8]"),
    "rotary positions": (attention_case({"do_rotary": 1}), "no tables of angles"),
    "a shared buffer": (attention_case({"past_present_share_buffer": 1}), "CUDA kernels"),
    "an attention bias of other keys": (
        attention_case(bias=normal(1, 1, 4, 5)), "attention_bias is [1, 1, 4, 5]"),
    "values of other tokens": (
        heads_case(value=normal(2, 3, 16)), "do not fit each other as heads"),
    "a past key alone": (heads_case(past_key=normal(2, 2, 1, 8)), "both given, or neither"),
    "a past of another size": (
        heads_case(past_key=normal(2, 2, 1, 4), past_value=normal(2, 2, 1, 8)),
        "past_key is [2, 2, 1, 4]"),
    "a shift of other channels": (heads_case(shift=normal(40)), "the bias is [40]"),
    "packed heads of another number": (
        heads_case(key=normal(2, 4, 3, 2, 8), value=None), "is not [batch, tokens, 2, 2, size]"),
    "a position beyond the table": (
        rotary_case(places=np.array([7])), "positions 7 to 10, and a table of 9"),
    "positions of another batch": (
        rotary_case(places=np.zeros((3, 4), np.int64)), "position_ids are [3, 4]"),
    "tables that are too wide": (
        rotary_case({"num_heads": 8}), "tables of shapes [9, 8] and [9, 8] for heads of 8"),
    "a scale": (rotary_case({"scale": 2.0}), "scale is 2.0"),
}  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_told_with_the_node(case, reason):
    op_type, feeds, attributes = case
    model = fused(op_type, feeds, **({"num_heads": 2} | attributes))
    with pytest.raises(ModelError) as caught:
        run(model, feeds)
    assert f"node 'node' (com.microsoft.{op_type}" in str(caught.value)
    assert reason in str(caught.value)
