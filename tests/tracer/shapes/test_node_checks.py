"""Inputs that do not fit a node of a language model: told with the node before anything runs."""

import numpy as np
import onnx
import onnxruntime
import pytest

import tests.interpreter.test_group_query_attention as grouped
import tests.interpreter.test_matmul_nbits as packed
import tests.interpreter.test_mixture_of_experts as experts
import tests.interpreter.test_multi_head_attention as heads
import tests.interpreter.test_state_operators as state
import tracer
import tracer.cli
from tests import decoders
from tests.interpreter.models import fused, normal, single
from tests.interpreter.models import onnxruntime as in_onnxruntime
from tracer import shapes
from tracer.errors import ModelError
from tracer.graph.loading import open_model

NOT_BEFORE = frozenset({
    "a scale", "weights of one device", "a shared buffer", "rotary positions", "two dimensions",
    "floats of 4 bits", "a sparse mixer", "swiglu without its second part", "an unknown activation",
    "an update beyond the end", "an update of other heads", "places of another batch",
    "an ungated rule with decay",
})  # fmt: skip
"""What the interpreter alone lacks, settings of experts, and operators of ONNX."""


def _packed(case):
    feeds, attributes, reason = packed.BAD[case]
    return packed.node(feeds, 4, 32, changes=attributes), packed.fed(feeds), reason


def _grouped(case):
    changes, attributes, reason = grouped.BAD[case]
    feeds = grouped.inputs(3, 1) | changes
    return grouped.node(feeds, **attributes), feeds, reason


def _heads(case):
    (op_type, feeds, attributes), reason = heads.BAD[case]
    return fused(op_type, feeds, **({"num_heads": 2} | attributes)), feeds, reason


def _experts_of(case):
    (model, feeds), reason = experts.BAD[case]
    return model, feeds, reason


def _state(case):
    (model, feeds), reason = state.BAD[case]
    return model, feeds, reason


def _cases(operator, make, bad):
    return {f"{operator}: {case}": (make, case) for case in bad if case not in NOT_BEFORE}


CASES = {
    **_cases("MatMulNBits", _packed, packed.BAD),
    **_cases("GroupQueryAttention", _grouped, grouped.BAD),
    **_cases("heads", _heads, heads.BAD),
    **_cases("experts", _experts_of, experts.BAD),
    **_cases("state", _state, state.BAD),
}


def given(feeds):
    return {name: value for name, value in feeds.items() if value is not None}


def check(model, feeds):
    shapes.check(open_model(model), {n: v.shape for n, v in given(feeds).items()}, given(feeds))


@pytest.mark.parametrize("name", CASES)
def test_every_fault_is_told_before_a_run(name):
    make, case = CASES[name]
    model, feeds, reason = make(case)
    with pytest.raises(ModelError) as caught:
        check(model, feeds)
    assert "node 'node' (com.microsoft." in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_refuses_the_same(name):
    make, case = CASES[name]
    model, feeds, _ = make(case)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        in_onnxruntime(model, given(feeds))


def _attention(**changes):
    feeds = {"Q": normal(1, 2, 32), "K": normal(1, 2, 16), "V": normal(1, 2, 16), "mask": None}
    cache = {"past_key": normal(1, 2, 3, 8), "past_value": normal(1, 2, 3, 8)}
    return feeds | cache | changes


OF_ONNX = {
    "heads": (_attention(), {"kv_num_heads": 3}, "16 channels do not fall into 3 heads"),
    "groups": (
        _attention(K=normal(1, 2, 24), V=normal(1, 2, 24)), {"kv_num_heads": 3},
        "4 query heads are no multiple of 3"),
    "cache of another length": (
        _attention(past_value=normal(1, 2, 2, 8)), {}, "past_key has 3 tokens, and past_value 2"),
    "cache of other heads": (
        _attention(past_key=normal(1, 1, 3, 8)), {}, "past_key is [1, 1, 3, 8]"),
    "keys of another batch": (_attention(K=normal(2, 2, 16)), {}, "do not fit each other"),
}  # fmt: skip


@pytest.mark.parametrize(("feeds", "attributes", "reason"), OF_ONNX.values(), ids=OF_ONNX)
def test_attention_of_onnx(feeds, attributes, reason):
    attributes = {"q_num_heads": 4, "kv_num_heads": 2} | attributes
    model = single("Attention", feeds, outputs=3, opset=23, **attributes)
    with pytest.raises(ModelError) as caught:
        check(model, feeds)
    assert reason in str(caught.value)
    with pytest.raises(Exception, match=r"(?i)onnxruntime|Inference"):
        in_onnxruntime(model, given(feeds))


def _experts(**changes):
    rng = np.random.default_rng(0)
    feeds = {
        "x": normal(3, 32), "router": normal(3, 2),
        "w1": rng.integers(0, 256, (2, 8, 16), np.uint8), "s1": np.ones((2, 8, 2), np.float32),
        "b1": None, "w2": rng.integers(0, 256, (2, 32, 4), np.uint8),
        "s2": np.ones((2, 32), np.float32),
    }  # fmt: skip
    return feeds | changes


def test_a_block_that_does_not_divide_the_inputs_of_an_expert():
    feeds = _experts()
    model = fused("QMoE", feeds, k=1, expert_weight_bits=4, block_size=16)
    with pytest.raises(ModelError, match="fc2 has 8 inputs, which blocks of 16 do not divide"):
        check(model, feeds)


def test_a_table_whose_blocks_have_other_scales():
    feeds = {
        "table": np.zeros((5, 16), np.uint8), "ids": np.array([1]),
        "scales": np.ones((5, 1), np.float32),
    }  # fmt: skip
    model = fused("GatherBlockQuantized", feeds, block_size=16, quantize_axis=1)
    with pytest.raises(ModelError, match=r"scales are \[5, 1\], and blocks of 16 .* are \[5, 2\]"):
        check(model, feeds)


def test_ranks_and_attributes_of_no_allowed_form():
    feeds = packed.broken()
    model = packed.node(feeds, 4, 32)
    kept = [each for each in model.graph.node[0].attribute if each.name != "K"]
    del model.graph.node[0].attribute[:]
    model.graph.node[0].attribute.extend(kept)
    scalar = {"x": normal(1, 2, 8), "weights": np.float32(1).reshape(())}
    flat = grouped.inputs(3, 1) | {"past_key": normal(2, 16), "past_value": normal(2, 16)}
    for broken_model, fed in (
        (model, packed.fed(feeds)),
        (fused("Attention", scalar, num_heads=2), scalar),
        (grouped.node(flat), flat),
    ):
        with pytest.raises(ModelError, match="node 'node'"):
            check(broken_model, fed)


@pytest.fixture
def broken(tmp_path):
    """A decoder whose heads of keys do not divide those of queries, in a file."""
    proto = decoders.grouped()
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "num_heads":
                attribute.i = 3
    onnx.save(proto, path := tmp_path / "decoder.onnx")
    return str(path)


PHASES = ("--prefill", "4", "--decode", "2")


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "command",
    [("count",), ("count", *PHASES), ("interpret",), ("interpret", "--against", "ort"),
     ("profile", "--runs", "2"), ("profile", *PHASES, "--runs", "2"), ("fusions",)],
    ids=" ".join,
)  # fmt: skip
def test_every_command_refuses_before_it_runs(command, broken, capfd, monkeypatch):
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)
    assert tracer.cli.main([command[0], broken, *command[1:]]) == ModelError.exit_code
    message = " ".join(capfd.readouterr().err.split())
    assert "node 'layers.0.attention' (com.microsoft.GroupQueryAttention" in message
    assert "num_heads, 3, is no multiple of kv_num_heads, 2" in message


def test_a_mask_of_another_length_than_the_cache_is_told(tmp_path):
    """The lengths that the attention gets are computed in the graph, from the mask that is fed."""
    onnx.save(decoders.grouped(), path := tmp_path / "decoder.onnx")
    cache = {f"past_key_values.{layer}.{part}": np.zeros((1, 2, 5, 16), np.float32)
             for layer in range(2) for part in ("key", "value")}  # fmt: skip
    ids = np.ones((1, 1), np.int64)
    for mask, reason in (
        (np.ones((1, 9), np.int64), "total_sequence_length is 9, the cache has 5 rows"),
        (np.zeros((1, 6), np.int64), "seqlens_k is [-1]"),
    ):
        np.savez(feeds := tmp_path / "feeds.npz", input_ids=ids, attention_mask=mask, **cache)
        with pytest.raises(ModelError) as caught:
            tracer.interpret(path, inputs=feeds, in_process=True)
        assert f"opset 1): {reason}" in str(caught.value)  # a failure of a run has types here
