"""MoE and QMoE against onnxruntime; what its CPU has no kernel for, against a plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import fused, normal, onnxruntime, quick
from tests.processors import with_vnni
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter

TOKENS, WIDTH, INNER, EXPERTS = 5, 64, 32, 4
FLAGS = st.booleans()
ACTIVATIONS = st.sampled_from(["relu", "gelu", "silu", "identity", "swiglu"])
ROUTED = ("x", "router", "router_weights")


def run(model, feeds):
    (result,) = Interpreter(model).run(None, feeds)
    return result


def close(ours, theirs, ulps=16):
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    unit = float(np.finfo(theirs.dtype).eps) * np.abs(theirs.astype(float)).max()
    np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=0, atol=ulps * unit)


def settings(activation, k, normalized, given_parameters=False):
    attributes = {
        "activation_type": activation, "k": k, "normalize_routing_weights": int(normalized),
        "swiglu_fusion": int(activation == "swiglu"),
    }  # fmt: skip
    if given_parameters:
        attributes |= {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.5}
    return attributes


def of_floats(activation, biased=True, shape=(TOKENS,)):
    rows = INNER * (2 if activation == "swiglu" else 1)
    return {
        "x": normal(*shape, WIDTH), "router": normal(int(np.prod(shape)), EXPERTS, seed=1),
        "fc1": normal(EXPERTS, rows, WIDTH, seed=2) / np.float32(8),
        "fc1_bias": normal(EXPERTS, rows, seed=3) if biased else None,
        "fc2": normal(EXPERTS, WIDTH, INNER, seed=4) / np.float32(8),
        "fc2_bias": normal(EXPERTS, WIDTH, seed=5) if biased else None,
    }  # fmt: skip


def moe(feeds, **attributes):
    given_feeds = {name: value for name, value in feeds.items() if value is not None}
    return fused("MoE", feeds, **attributes), given_feeds


@quick
@given(ACTIVATIONS, st.integers(1, EXPERTS), FLAGS, FLAGS, FLAGS, FLAGS)
def test_experts_of_floats(activation, k, normalized, biased, parameters, sentences):
    feeds = of_floats(activation, biased, (2, 3) if sentences else (TOKENS,))
    model, fed = moe(feeds, **settings(activation, k, normalized, parameters))
    close(run(model, fed), onnxruntime(model, fed)[0])


@pytest.mark.parametrize("fusion", [0, 2])
def test_other_layouts_of_swiglu_are_the_interleaved_one(fusion):
    """onnxruntime's CPU has the interleaved layout alone."""
    feeds = of_floats("swiglu")
    attributes = settings("swiglu", 2, True, True)
    expected = onnxruntime(*moe(feeds, **attributes))[0]
    halves = {name: [feeds[name][:, part::2] for part in (0, 1)] for name in ("fc1", "fc1_bias")}
    if fusion == 2:
        feeds |= {name: np.concatenate(parts, axis=1) for name, parts in halves.items()}
    else:
        feeds |= {name: parts[0] for name, parts in halves.items()}
        feeds |= {"fc3": halves["fc1"][1], "fc3_bias": halves["fc1_bias"][1]}
    close(run(*moe(feeds, **attributes | {"swiglu_fusion": fusion})), expected)


def test_a_third_layer_multiplies_the_activation():
    """onnxruntime's CPU has no third layer; held against the sum over experts, written out."""
    feeds = of_floats("silu", biased=False)
    feeds |= {"fc3": normal(EXPERTS, INNER, WIDTH, seed=6) / np.float32(8)}
    result = run(*moe(feeds, **settings("silu", EXPERTS, False)))
    x = feeds["x"].astype(np.float64)
    shares = np.exp(feeds["router"].astype(np.float64))
    shares /= shares.sum(1, keepdims=True)
    expected = np.zeros_like(x)
    for expert in range(EXPERTS):
        gate = x @ feeds["fc1"][expert].T
        inside = gate / (1 + np.exp(-gate)) * (x @ feeds["fc3"][expert].T)
        expected += shares[:, expert, None] * (inside @ feeds["fc2"][expert].T)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def of_codes(bits, block, zeros, activation, weighted=False, kind=np.float32):
    rng = np.random.default_rng(0)
    rows = INNER * (2 if activation == "swiglu" else 1)

    def layer(outputs, inputs):
        blocks = inputs // block if block else 1
        shape = (EXPERTS, outputs, blocks) if block else (EXPERTS, outputs)
        packed = (*shape[:-1], -(-shape[-1] * bits // 8))
        return (
            rng.integers(0, 256, (EXPERTS, outputs, inputs * bits // 8), np.uint8),
            (rng.uniform(0.1, 0.5, shape) / 2**bits).astype(kind),
            rng.integers(0, 256, packed, np.uint8) if zeros else None,
        )

    first, second = layer(rows, WIDTH), layer(WIDTH, INNER)
    feeds = {
        "x": normal(TOKENS, WIDTH).astype(kind),
        "router": normal(TOKENS, EXPERTS, seed=1).astype(kind),
        "fc1": first[0], "fc1_scales": first[1], "fc1_bias": normal(EXPERTS, rows, seed=2),
        "fc2": second[0], "fc2_scales": second[1], "fc2_bias": normal(EXPERTS, WIDTH, seed=3),
        "fc3": None, "fc3_scales": None, "fc3_bias": None,
        "fc1_zeros": first[2], "fc2_zeros": second[2], "fc3_zeros": None,
        "router_weights": np.abs(normal(TOKENS, EXPERTS, seed=4)) if weighted else None,
    }  # fmt: skip
    return {n: v.astype(kind) if v is not None and v.dtype.kind == "f" else v
            for n, v in feeds.items()}  # fmt: skip


def qmoe(feeds, bits, block, level=0, **attributes):
    stored = [name for name in feeds if feeds[name] is not None and name not in ROUTED]
    attributes |= {"expert_weight_bits": bits, "accuracy_level": level}
    if block:
        attributes["block_size"] = block
    model = fused("QMoE", feeds, stored=stored, **attributes)
    return model, {name: feeds[name] for name in ROUTED if feeds[name] is not None}


@with_vnni
@quick
@given(
    st.sampled_from([2, 4, 8]), st.sampled_from([0, 16, 32]), FLAGS, st.sampled_from([0, 4]),
    ACTIVATIONS, st.integers(1, 3), FLAGS, FLAGS, st.sampled_from([np.float32, np.float16]),
)  # fmt: skip
def test_experts_of_codes(bits, block, zeros, level, activation, k, normalized, weighted, kind):
    feeds = of_codes(bits, block, zeros, activation, weighted, kind)
    model, fed = qmoe(feeds, bits, block, level, **settings(activation, k, normalized))
    close(run(model, fed), onnxruntime(model, fed)[0], ulps=64)


def broken(attributes=None, bits=4, block=16, **changes):
    feeds = of_codes(4, 16, True, "silu") | changes
    return qmoe(feeds, bits, block, **(settings("silu", 2, True) | (attributes or {})))


BAD = {
    "a block that does not divide the inputs": (
        broken(block=128), "fc1 has 64 inputs, which blocks of 128 do not divide"),
    "a block that is no power of two": (broken(block=24), "the block size is 24"),
    "three bits": (broken(bits=3), "3 bits"),
    "scales of other blocks": (
        broken(fc1_scales=np.ones((EXPERTS, INNER), np.float32)), "fc1 has scales [4, 32]"),
    "zero points of another packing": (
        broken(fc1_zeros=np.zeros((EXPERTS, INNER, 4), np.uint8)),
        "zero points of fc1 are [4, 32, 4], not [4, 32, 2]"),
    "a bias of other rows": (
        broken(fc2_bias=np.zeros((EXPERTS, 3), np.float32)), "the bias of fc2 is [4, 3]"),
    "more experts than there are": (broken({"k": 5}), "5 experts of each token, of [5, 4]"),
    "a router of other tokens": (
        broken(router=normal(3, EXPERTS)), "the router has 3 rows, and there are 5 tokens"),
    "an unknown activation": (broken({"activation_type": "tanh"}), "activation_type is 'tanh'"),
    "floats of 4 bits": (broken({"quant_type": "fp4"}), "weights of quant_type 'fp4'"),
    "a sparse mixer": (broken({"use_sparse_mixer": 1}), "use_sparse_mixer is 1"),
    "swiglu without its second part": (
        broken({"activation_type": "swiglu", "swiglu_fusion": 0}), "no weights of fc3"),
}  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_told_with_the_node(case, reason):
    with pytest.raises(ModelError) as caught:
        run(*case)
    assert "node 'node' (com.microsoft.QMoE" in str(caught.value)
    assert reason in str(caught.value)
