"""Rules about language models, each with a model of which it is true and one of which it is not."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

import tracer
import tracer.cli
from tests.analyzers.advice.test_rules import told
from tests.decoders import KV_HEADS, LAYERS, SIZE, VOCABULARY, WIDTH, grouped
from tests.examples import at_night
from tests.graphs import parse
from tests.interpreter import test_group_query_attention as attention
from tests.interpreter import test_matmul_nbits as packed
from tests.interpreter.models import normal

QUICK = {"runs": 2, "warmup": 0, "threads": 1, "in_process": True}


def product(level):
    feeds = {"a": normal(3, 96), **packed.quantized(normal(96, 8), 4, 32)}
    return tracer.profile(packed.node(feeds, 4, 32, changes={"accuracy_level": level}), **QUICK)


def test_packed_weights_are_multiplied_as_floats_below_level_4():
    found = told(product(0), 10)["unrounded_activations"]
    assert found.nodes == ("node",)
    assert found.figures == {"time_us": 10, "macs": 3 * 96 * 8}
    assert "takes 100% of the time (10 µs)" in found.text
    assert "accuracy_level = 4" in found.text
    assert "unrounded_activations" not in told(product(4), 10)


HALVES = """
<ir_version: 8, opset_import: ["": 17]>
g (float16[4,8] x) => (float16[4,8] z) {
  y = MatMul (x, w)
  z = Softmax (y)
}
"""


def in_type(dtype):
    text = HALVES.replace("float16", "float" if dtype == "float32" else dtype)
    return tracer.profile(parse(text, w=np.ones((8, 8), dtype)), **QUICK)


def test_casts_that_onnxruntime_inserts_for_halves():
    trace = in_type("float16")
    casts = [k.name for k in trace.runs[0].kernels if k.op_type == "Cast"]
    assert casts  # what the rule is about: none of them is a node of the model
    found = told(trace, 10)["inserted_casts"]
    assert found.figures["casts"] == len(casts)
    timed = trace.nodes["time_us"].notna().sum()
    assert found.time_share == pytest.approx(len(casts) / timed)
    assert found.text.startswith(f"float16 on the CPU: {len(casts)} casts")
    assert "MatMul" in found.text
    assert "conversions" not in told(trace, 10)  # of the same casts
    assert "inserted_casts" not in told(in_type("float32"), 10)


def attended(past, rows):
    feeds = attention.inputs(past, 1, rows=rows)
    given = {name: value for name, value in feeds.items() if value is not None}
    model = attention.node(feeds)
    values = {value.name: given[value.name] for value in model.graph.input}
    return model, values


@pytest.mark.parametrize(("past", "rows", "copied"), [(3, 3, True), (3, 8, False)])
def test_a_cache_that_is_copied_into_a_longer_one(tmp_path, past, rows, copied):
    model, values = attended(past, rows)
    np.savez(tmp_path / "feeds.npz", **values)
    found = told(tracer.profile(model, inputs=tmp_path / "feeds.npz", **QUICK), 10)
    assert ("copied_cache" in found) is copied
    if copied:
        advice = found["copied_cache"]
        assert advice.figures == {"bytes": 2 * 2 * past * 16 * 4}
        assert "copies 768 B of past keys and values" in advice.text


@pytest.fixture(scope="module")
def profiled():
    return tracer.profile(grouped(), prefill=8, decode=2, **QUICK)


def of_phase(trace, phase):
    (run,) = (each for each in trace.runs if each.phase == phase)
    rows = trace.nodes[trace.nodes["phase"] == phase]
    return replace(trace, runs=(run,), nodes=rows)


def test_a_head_that_reads_all_tokens_of_a_prompt(profiled):
    found = told(of_phase(profiled, "prefill"), 10)["unpruned_head"]
    assert found.nodes == ("head",)
    assert found.figures == {"macs": 7 * WIDTH * VOCABULARY, "time_us": 8.75, "tokens": 8}
    assert "the logits of all 8 tokens" in found.text
    assert "unpruned_head" not in told(of_phase(profiled, "decode"), 10)


@pytest.mark.nightly
def test_a_head_that_reads_the_last_token_alone():
    proto = grouped()
    head = next(node for node in proto.graph.node if node.name == "head")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "last_token"))
    at = list(proto.graph.node).index(head)
    proto.graph.node.insert(
        at, onnx.helper.make_node("Gather", [head.input[0], "last_token"], ["newest"], axis=1)
    )
    head.input[0] = "newest"
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1
    pruned = tracer.profile(proto, prefill=8, decode=2, **QUICK)
    assert "unpruned_head" not in told(of_phase(pruned, "prefill"), 10)


def test_a_bias_and_a_cap_may_follow_the_head():
    proto = grouped()
    head = next(node for node in proto.graph.node if node.name == "head")
    head.output[0] = "products"
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(np.ones(VOCABULARY, np.float32), "bias")
    )
    proto.graph.node.extend([
        onnx.helper.make_node("Add", ["products", "bias"], ["biased"]),
        onnx.helper.make_node("Tanh", ["biased"], ["logits"]),
    ])  # fmt: skip
    trace = of_phase(tracer.profile(proto, prefill=8, decode=2, **QUICK), "prefill")
    assert told(trace, 10)["unpruned_head"].nodes == ("head",)


def moved(trace):
    """The trace as a card would have it, of which the first two kernels are copies."""
    run = trace.runs[0]
    names = ("MemcpyToHost", "MemcpyFromHost")
    kernels = [
        replace(kernel, op_type=names[at], provider="CUDAExecutionProvider") if at < 2 else kernel
        for at, kernel in enumerate(run.kernels)
    ]
    return replace(trace, runs=(replace(run, kernels=tuple(kernels)),))


def test_copies_to_kernels_on_the_cpu(profiled):
    """No provider with copies runs without a card: the kernels are those of a CPU, renamed."""
    trace = of_phase(profiled, "prefill")
    found = told(moved(trace), 10)["other_provider"]
    assert found.figures["copies"] == 2
    assert found.figures["kernels"] == len(trace.runs[0].kernels) - 2
    assert "CPUExecutionProvider" in found.text
    assert "other_provider" not in told(trace, 10)


@pytest.mark.nightly
@pytest.mark.parametrize("width", at_night([80, 160], but=[80]))
def test_advice_on_phases_says_of_which_phase(profiled, tmp_path, width, capfd, monkeypatch):
    nodes = profiled.nodes.copy()
    timed = nodes["time_us"].notna()
    for column in ("time_us", "time_us_raw", "time_us_ci95_low", "time_us_ci95_high"):
        nodes[column] = nodes[column].mask(timed, 10.0)
    sums = nodes.groupby("phase")["time_us"].transform("sum")
    nodes["time_share"] = nodes["time_us"] / sums
    path = replace(profiled, nodes=nodes).save(tmp_path / "phases.trace")
    monkeypatch.setenv("COLUMNS", str(width))
    assert tracer.cli.main(["report", str(path)]) == 0
    shown = capfd.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    text = " ".join(shown.split())
    assert "- prefill: head not pruned: head computes the logits of all 8 tokens" in text
    cache = 2 * LAYERS * KV_HEADS * SIZE * 4 * 9
    assert "- decode: cache copied: layers.0.attention, layers.1.attention take" in text
    assert f"copy {cache / 1000:.3g} kB" in text
    assert "head not pruned" in tracer.load(path).save(tmp_path / "phases.html").read_text()
