"""Operators that carry a state from token to token, against onnxruntime's kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import agree, fused, normal, onnxruntime, quick, single
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter

FLAGS = st.booleans()
RULES = st.sampled_from(["linear", "gated", "delta", "gated_delta"])


def run(model, feeds):
    return Interpreter(model).run(None, {n: v for n, v in feeds.items() if v is not None})


def close(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1, np.abs(b).max(initial=0)))


def attended(rule, heads, tokens, per_channel=False, shared_rate=False, past=False):
    """Feeds of LinearAttention: keys of 4 channels, values of 6."""
    queries, groups = heads
    gates = groups * 4 if per_channel else groups
    feeds = {
        "query": normal(2, tokens, queries * 4),
        "key": normal(2, tokens, groups * 4, seed=1) / np.float32(4),
        "value": normal(2, tokens, groups * 6, seed=2),
        "past": normal(2, groups, 4, 6, seed=3) if past else None,
        "decay": -np.abs(normal(2, tokens, gates, seed=4)) if "gated" in rule else None,
        "beta": None,
    }
    if rule.endswith("delta"):
        feeds["beta"] = np.abs(normal(2, tokens, 1 if shared_rate else groups, seed=5))
    attributes = {"q_num_heads": queries, "kv_num_heads": groups, "update_rule": rule}
    return feeds, attributes


@quick
@given(RULES, st.sampled_from([(4, 2), (2, 2), (2, 4)]), st.integers(1, 6), FLAGS, FLAGS, FLAGS,
       st.sampled_from([0.0, 0.3]))  # fmt: skip
def test_linear_attention(rule, heads, tokens, per_channel, shared_rate, past, scale):
    feeds, attributes = attended(rule, heads, tokens, per_channel, shared_rate, past)
    model = fused("LinearAttention", feeds, ("y", "state"), scale=scale, **attributes)
    close(run(model, feeds), onnxruntime(model, feeds))


@pytest.mark.parametrize("rule", ["linear", "gated_delta"])
def test_tokens_one_by_one_end_in_the_same_state(rule):
    feeds, attributes = attended(rule, (4, 2), 5)
    model = single("LinearAttention", feeds, 2, 27, **attributes)
    expected = run(model, feeds)
    rows, state = [], np.zeros((2, 2, 4, 6), np.float32)
    for token in range(5):
        part = {n: None if v is None else v[:, token : token + 1] for n, v in feeds.items()}
        part["past"] = state
        row, state = run(single("LinearAttention", part, 2, 27, **attributes), part)
        rows.append(row)
    close([np.concatenate(rows, 1), state], expected)


@quick
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 3), FLAGS, FLAGS,
       st.sampled_from(["none", "silu", "swish"]))  # fmt: skip
def test_a_causal_convolution(taps, length, dilation, biased, past, activation):
    feeds = {
        "x": normal(2, 3, length),
        "weight": normal(3, 1, taps, seed=1),
        "bias": normal(3, seed=2) if biased else None,
        "past": normal(2, 3, (taps - 1) * dilation, seed=3) if past and taps > 1 else None,
    }
    model = fused(
        "CausalConvWithState", feeds, ("y", "state"), activation=activation, dilation=dilation
    )
    close(run(model, feeds), onnxruntime(model, feeds))


@quick
@given(st.sampled_from(["linear", "circular"]), st.sampled_from([1, 2, -1, -2]), FLAGS,
       st.integers(1, 4), st.sampled_from([np.float32, np.int8]))  # fmt: skip
def test_an_update_of_a_cache(mode, axis, placed, new, kind):
    shape = (2, 5, 6, 4)
    part = list(shape)
    part[axis] = new
    rng = np.random.default_rng(new)
    room = shape[axis] if mode == "circular" else shape[axis] - new + 1
    feeds = {
        "cache": (9 * normal(*shape)).astype(kind),
        "update": (9 * normal(*part, seed=1)).astype(kind),
        "places": rng.integers(0, room, 2) if placed else None,
    }
    agree(single("TensorScatter", feeds, opset=24, mode=mode, axis=axis), feeds)


def scattered(**changes):
    feeds = {"cache": normal(2, 3, 6, 4), "update": normal(2, 3, 2, 4)} | changes
    model = single("TensorScatter", feeds, opset=24)
    model.graph.output[0].type.tensor_type.elem_type = 1  # onnx infers nothing from what is wrong
    model.graph.output[0].type.tensor_type.shape.SetInParent()
    return model, feeds


def linear(changes, rule="gated_delta"):
    feeds, attributes = attended(rule, (4, 2), 3)
    feeds, attributes = feeds | changes, {**attributes, "update_rule": rule}
    return fused("LinearAttention", feeds, ("y", "state"), **attributes), feeds


def of_onnx(changes, rule):
    """The same, as ONNX's operator; its own inference of shapes tells nothing of what is wrong."""
    model, feeds = linear(changes, rule)
    model.graph.node[0].domain = ""
    model.opset_import[0].version = 27
    return model, feeds


def convolved(attributes=None, **changes):
    feeds = {"x": normal(2, 3, 5), "weight": normal(3, 1, 4)} | changes
    return fused("CausalConvWithState", feeds, ("y", "state"), **(attributes or {})), feeds


BAD = {
    "an update beyond the end": (
        scattered(places=np.array([0, 5])), "write_indices are [0, 5], from 0 to 4 are allowed"),
    "an update of other heads": (scattered(update=normal(2, 2, 2, 4)), "an update [2, 2, 2, 4]"),
    "places of another batch": (scattered(places=np.array([0])), "write_indices are [1], not [2]"),
    "a gated rule without decay": (linear({"decay": None}), "'gated_delta' needs decay"),
    "an ungated rule with decay": (
        of_onnx({"decay": normal(2, 3, 2), "beta": None}, "linear"), "'linear' takes no decay"),
    "a state of other heads": (linear({"past": normal(2, 4, 4, 6)}), "past_state is [2, 4, 4, 6]"),
    "values of other tokens": (linear({"value": normal(2, 4, 12)}), "do not fit each other"),
    "gates of other heads": (linear({"decay": normal(2, 3, 3)}), "decay is [2, 3, 3], for 2 heads"),
    "gates of other tokens": (linear({"beta": normal(2, 1, 2)}), "beta is [2, 1, 2], for 2 heads"),
    "taps of other channels": (convolved(weight=normal(2, 1, 4)), "taps [2, 1, 4] for [2, 3, 5]"),
    "a past of another length": (
        convolved(bias=None, past=normal(2, 3, 2)), "past_state is [2, 3, 2], not [2, 3, 3]"),
    "an unknown activation": (convolved({"activation": "relu"}), "activation is 'relu'"),
    "two dimensions": (convolved({"ndim": 2}), "ndim is 2; the interpreter computes 1 alone"),
}  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_told(case, reason):
    with pytest.raises(ModelError) as caught:
        run(*case)
    assert reason in str(caught.value)
