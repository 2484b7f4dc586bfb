"""What-ifs of networks, against onnxruntime and against published numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

import tracer
from models import families
from tests.tracer.quantization.test_channels import detector
from tests.tracer.whatif import networks
from tracer.analyzers import whatif
from tracer.analyzers.views.trace.overflow import sums_words
from tracer.api.whatif import what_if
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph.loading import load
from tracer.inputs.datasets.opening import open_dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization.options import QuantizationOptions
from tracer.records.whatif import Coverage
from tracer.storage import whatif_file
from tracer.whatif import variants
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.reuse import StoredBatches

FLOAT = families.shipped("lenet", "torch")
LENET = FLOAT.with_suffix(".int8.onnx")
QUICK = WhatIfOptions(limit=24, search=False)


def accuracy_of_onnxruntime(path, samples):
    """Without optimisation: a processor without VNNI would saturate pairs of 8-bit products."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (batch,) = open_dataset("digits", load(path), limit=samples).batches(samples)
    predicted = session.run(None, batch.inputs)[0].argmax(-1)
    return 100 * float((predicted == batch.labels).mean())


@pytest.mark.nightly
def test_energies_are_those_of_the_experiment():
    options = replace(QUICK, limit=8, orders=("channelwise",))
    (one,) = what_if(LENET, [17, 18], "digits", options).variants
    assert {row.bits: row.energy for row in one.answer.rows} == {17: 199829594, 18: 223315236}
    assert (one.energy(17), one.energy(18)) == (199829594, 223315236)


def test_a_width_that_cannot_overflow_predicts_what_onnxruntime_does():
    (one,) = what_if(LENET, [16, 24], "digits", replace(QUICK, limit=60)).variants
    narrow, wide = one.answer.rows
    assert one.answer.guaranteed == 24
    assert wide.score == one.answer.score == accuracy_of_onnxruntime(LENET, 60)
    assert not any(each.overflow_outputs for each in wide.evaluation.overflows.values())
    assert narrow.score < wide.score


def test_a_width_is_safe_for_any_input_in_the_nodes_that_are_swept(tmp_path):
    """conv2 of LeNet has 16 x 6 x 25 x 100 of the 651,720 MACs of a sample."""
    (one,) = what_if(LENET, "node_Conv_23=23:24", "digits", replace(QUICK, limit=8)).variants
    assert one.coverage == Coverage(1, 5, pytest.approx(240_000 / 651_720))
    result = what_if(LENET, [24], "digits", replace(QUICK, limit=8))
    assert result.variants[0].coverage == Coverage(5, 5, 1.0)
    partly = replace(result.variants[0], coverage=Coverage(1, 2, 0.17))
    whole, some = (next(whatif.sentences(result, v)) for v in (result.variants[0], partly))
    assert whole.endswith("; 24 bits are safe for any input.")
    assert some.endswith(
        "; 24 bits are safe for any input in 1 of 2 nodes that multiply, with 17.0% of the MACs."
    )
    result.save(tmp_path / "w.trace")
    stored = whatif_file.load(tmp_path / "w.trace")
    assert stored.variants[0].coverage == Coverage(5, 5, 1.0)


@pytest.mark.parametrize("accumulators", [[24], "24,fp32"])
def test_a_default_budget_above_the_score_is_told(tmp_path, accumulators):
    """Labels are 0.1 off what onnxruntime returns, so the error is 0.01, and the budget is 1."""
    session = onnxruntime.InferenceSession(FLOAT, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).uniform(0, 1, (8, 3, 32, 32)).astype(np.float32)
    labels = session.run(None, {session.get_inputs()[0].name: x})[0] + np.float32(0.1)
    np.savez(tmp_path / "d.npz", x=x, labels=labels)
    for metric, budget, is_told in (("mse", None, True), ("mse", 1, False), ("noise", None, False)):
        options = WhatIfOptions(
            search=accumulators == "24,fp32", metric=metric, fixed="24:14", accuracy_budget=budget
        )
        found = what_if(FLOAT, accumulators, str(tmp_path / "d.npz"), options)
        told = [note for note in found.notes if note.startswith("the default budget of 1 exceeds")]
        assert bool(told) == is_told
        for note in told:
            mse = float(note.split("mse of the reference, ")[1].split(":")[0])
            assert mse == pytest.approx(0.01, rel=0.02)


BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (float[n,4] x) => (float[n,4] y) {
  [few] wd = DequantizeLinear (w, s)  [many] vd = DequantizeLinear (v, s)
  total = ReduceSum <keepdims = 0> (x)
  is_positive = Greater (total, zero)
  [if] y = If (is_positive) <
    then_branch = then () => (float[n,4] m) {
      a = QuantizeLinear (x, s, z)  ad = DequantizeLinear (a, s, z)  [small] m = MatMul (ad, wd) },
    else_branch = else () => (float[n,4] k) {
      b = QuantizeLinear (x, s, z)  bd = DequantizeLinear (b, s, z)  [large] k = MatMul (bd, vd) }>
}"""


def test_no_width_is_safe_for_any_input_in_a_branch_that_no_sample_takes(tmp_path):
    """The branch taken adds 4 products of 255 and 1, the other one of 255 and 127: 18 bits."""
    proto, data = onnx.parser.parse_model(BRANCHES), tmp_path / "x.npz"
    stored = {"w": np.ones((4, 4), np.int8), "v": np.full((4, 4), 127, np.int8),
              "s": np.float32(0.5), "z": np.uint8(0), "zero": np.float32(0)}  # fmt: skip
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in stored.items())
    onnx.save(proto, tmp_path / "m.onnx")
    np.savez(data, x=np.full((3, 4), 200, np.float32))
    assert int((np.ones(4) * 255).sum()).bit_length() + 1 == 11
    (one,) = what_if(tmp_path / "m.onnx", [11], str(data), WhatIfOptions(search=False)).variants
    assert (one.answer.guaranteed, one.coverage) == (11, Coverage(1, 2, 0.5))
    trace = tracer.interpret(tmp_path / "m.onnx", accumulator=11, inputs=tracer.Samples(str(data)))
    _, words = sums_words(trace.nodes)
    assert "guaranteed at 11 bits for any input: 1 of 2 nodes that multiply" in words


def test_many_small_samples_run_in_larger_batches_with_the_same_result():
    options = replace(QUICK, limit=2_048)
    chosen = what_if(LENET, [18, 22], "digits*6", options)
    asked = what_if(LENET, [18, 22], "digits*6", replace(options, batch=100))
    assert (chosen.settings["batch"], asked.settings["batch"]) == (128, 100)
    assert chosen.variants[0].answer.rows == asked.variants[0].answer.rows
    assert what_if(LENET, [24], "digits", QUICK).settings["batch"] == 64


@pytest.mark.nightly
def test_a_float_model_is_quantised_on_the_way_and_says_so():
    result = what_if(FLOAT, [24], "digits", QUICK)
    assert "was quantised first" in result.notes[0]
    (one,) = result.variants
    (same,) = what_if(LENET, [24], "digits", QUICK).variants
    assert one.answer.observed == same.answer.observed
    assert one.answer.score == same.answer.score


def test_fixed_point_numbers_are_an_alternative_to_quantising():
    result = what_if(FLOAT, [40], "digits", replace(QUICK, limit=8, fixed="16:8/16:13"))
    assert not any("quantised" in note for note in result.notes)
    assert result.variants[0].answer.rows[0].score == accuracy_of_onnxruntime(FLOAT, 8)


@pytest.mark.nightly
def test_the_cross_product_of_the_axes_runs(tmp_path):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz")
    options = WhatIfOptions(orders=("sequential", "tree"), overflows=("saturate", "wrap"),
                      biases=("first", "last"), search=False, batch=5)  # fmt: skip
    reports = []
    report = lambda *args: reports.append(args)  # noqa: E731
    result = what_if(model, "10:12", data, options, progress=report)
    kinds = [one.answer.accumulator for one in result.variants]
    assert len({(str(k.order), k.overflow, k.bias) for k in kinds}) == len(kinds) == 8
    passes = [(done, total) for done, total, what in reports if what == "evaluating"]
    assert passes == [(done, 8 * 4) for done in range(1, 8 * 4 + 1)]
    batches = [(done, total) for done, total, what in reports if what == "batches"]
    assert batches == [(1, 3), (2, 3), (3, 3)] * (len(batches) // 3)
    for one in result.variants:
        alone = replace(options, orders=(str(one.answer.accumulator.order),),
                        overflows=(one.answer.accumulator.overflow,),
                        biases=(one.answer.accumulator.bias,))  # fmt: skip
        (same,) = what_if(model, "10:12", data, alone).variants
        assert same.answer.rows == one.answer.rows


@pytest.mark.nightly
def test_fewer_bits_of_weights_and_activations_are_axes():
    options = replace(QUICK, weight_bits=(8, 4), activation_bits=(8, 6))
    result = what_if(LENET, [24], "digits", options)
    variants = {(v.weight_bits, v.activation_bits): v for v in result.variants}
    assert set(variants) == {(8, 8), (8, 6), (4, 8), (4, 6)}
    guaranteed = {bits: one.answer.guaranteed for bits, one in variants.items()}
    assert guaranteed[4, 6] < guaranteed[8, 6] < guaranteed[8, 8]


@pytest.fixture
def passes(monkeypatch):
    """The batches that each pass over the data computes."""
    begun = []
    real_pass, real_run = StoredBatches.__call__, Interpreter.outputs

    def one_pass(self, shard):
        begun.append(0)
        return real_pass(self, shard)

    def outputs(self, alive):
        begun[-1] += 1
        return real_run(self, alive)

    monkeypatch.setattr(StoredBatches, "__call__", one_pass)
    monkeypatch.setattr(Interpreter, "outputs", outputs)
    return begun


def test_a_sweep_passes_over_the_data_once_for_each_width_that_overflows(tmp_path, passes):
    model = networks.model(tmp_path / "m.onnx")
    data = networks.data(tmp_path / "d.npz", samples=40, labels=False)
    options = WhatIfOptions(batch=8, accuracy_budget=10, search=False)
    (one,) = what_if(model, "8:20", data, options).variants
    safe, least = one.answer.observed, max(one.answer.uniform.widths)
    assert 8 < least < safe < 20
    assert len(passes) == 1 + safe - 8
    assert max(passes) == 5  # batches
    for bits in (least - 1, safe + 1):
        passes.clear()
        (alone,) = what_if(model, [bits], data, options).variants
        assert alone.answer.uniform == one.answer.uniform
        assert len(passes) == 1 + safe - (least - 1)  # the widths that B tries; A needs no pass


def test_the_node_that_limits_is_explained_by_an_evaluation_for_each(tmp_path, passes):
    model = networks.model(tmp_path / "m.onnx")
    data = networks.data(tmp_path / "d.npz", samples=40, labels=False)
    options = WhatIfOptions(batch=8, accuracy_budget=10, search=False)
    answers = []
    for explain in (False, True):
        result = what_if(model, "8:20", data, replace(options, explain=explain))
        answers.append(result.variants[0].answer)
    quick, explained = answers
    assert len(explained.evaluations) == len(quick.evaluations) + 3
    assert replace(explained.uniform, limiting=None) == quick.uniform
    losses = {}
    for evaluation in explained.evaluations[-3:]:
        (node,) = {n for n, bits in evaluation.bits.items() if bits < max(quick.uniform.widths)}
        losses[node] = abs(quick.uniform.score - evaluation.score)
    assert losses[explained.uniform.limiting] == max(losses.values()) > 0
    shares = {
        sums.node: sums.tally.overflow(max(quick.uniform.widths) - 1).overflow_outputs.sum()
        / sums.tally.outputs.sum()
        for sums in quick.sums
    }
    assert shares[quick.uniform.overflowing] == max(shares.values()) > 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("samples", [40, 90])
def test_widths_for_each_node_are_within_the_budget_and_cost_less(tmp_path, samples):
    """Of 40 samples all are tried, of 90 the hardest 32 first."""
    model = networks.model(tmp_path / "m.onnx")
    data = networks.data(tmp_path / "d.npz", samples=samples, labels=False)
    options = WhatIfOptions(batch=8, accuracy_budget=10)
    result = what_if(model, "8:20", data, options)
    answer = result.variants[0].answer
    assert result.judgement.metric == "agreement"
    assert answer.score == 100
    assert answer.uniform.score >= 90 and answer.each.score >= 90
    assert answer.each.energy <= answer.uniform.energy
    assert (answer.screening and answer.screening.samples) == (None if samples == 40 else 32)
    widths = answer.each.widths
    policy = ",".join(f"{one.node}={bits}" for one, bits in zip(answer.sums, widths, strict=True))
    with np.load(data) as arrays:
        np.savez(tmp_path / "x.npz", x=arrays["x"])
    outputs = []
    for accumulator in (policy, 40):
        tracer.interpret(
            model, accumulator=accumulator, inputs=tmp_path / "x.npz",
            receive=lambda _, values: outputs.append(values[0].argmax(-1)),
        )  # fmt: skip
    assert answer.each.score == pytest.approx(100 * (outputs[0] == outputs[1]).mean())
    again = what_if(model, "8:20", data, options).variants[0].answer
    assert (again.each.widths, again.uniform, len(again.evaluations)) == (
        widths, answer.uniform, len(answer.evaluations)
    )  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("Conv_3=14,12:16", ["Conv_3=14,*={}"]),
        ("Conv=13,*=9,*=12:14", ["Conv=13,*={}"]),
        pytest.param("Gemm=12,Conv=10:12", ["Gemm=12,Conv={}"], marks=pytest.mark.nightly),
        ("Conv_3=12:13,11:12", ["Conv_3=12,*={}", "Conv_3=13,*={}"]),
        pytest.param("Gemm=12,Conv_?=14", ["Gemm=12,Conv_?={}"], marks=pytest.mark.nightly),
    ],
)
def test_a_sweep_with_pinned_nodes_is_plain_runs_with_that_policy(tmp_path, text, policies):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz", 30)
    with np.load(data) as arrays:
        x, labels = arrays["x"], arrays["labels"]
    np.savez(tmp_path / "x.npz", x=x)
    result = what_if(model, text, data, WhatIfOptions(search=False, batch=30, metric="top1"))
    assert [one.pinned.text for one in result.variants] == [p.rpartition(",")[0] for p in policies]
    for one, policy in zip(result.variants, policies, strict=True):
        for row in one.answer.rows:
            outputs = []
            trace = tracer.interpret(
                model, accumulator=policy.format(row.bits), inputs=tmp_path / "x.npz",
                receive=lambda _, values, to=outputs: to.extend(values),
            )  # fmt: skip
            assert row.score == (100.0 * (outputs[0].argmax(-1) == labels)).mean()
            counted = trace.nodes.set_index("node")["overflow_outputs"].dropna()
            overflows = {node: o.overflow_outputs for node, o in row.evaluation.overflows.items()}
            assert overflows == counted.to_dict()


def test_the_search_leaves_pinned_nodes_alone_and_a_is_about_the_others(tmp_path):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz", 40)
    options = WhatIfOptions(batch=8, accuracy_budget=60, metric="agreement")
    (one,) = what_if(model, "Conv_3=11,10:18", data, options).variants
    answer, place = one.answer, [work.node for work in one.work].index("Conv_3")
    assert answer.uniform.widths[place] == answer.each.widths[place] == 11
    assert {each.bits["Conv_3"] for each in answer.evaluations} == {11}
    tried = {row.bits: row.evaluation.overflows for row in answer.rows}

    def beyond(bits):
        return sum(o.overflow_outputs for node, o in tried[bits].items() if node != "Conv_3")

    assert tried[18]["Conv_3"].overflow_outputs > 0
    assert beyond(answer.observed) == 0 < beyond(answer.observed - 1)
    assert one.swept_energy(18) == answer.rows[-1].energy


def test_an_entry_for_nobody_is_told_with_the_nodes_there_are(tmp_path):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz")
    for text, message in [
        ("conv9=14,12:16", "entry 'conv9=14' matches no node, operator or module"),
        ("14,Conv_3=12:16", "entry 'Conv_3=12:16' has no effect"),
        ("?*=14,*=12:16", r"'\*=12:16' matches no further node: \?\*=14"),
        ("Relu=12:16", "adds nothing up"),
        ("p.toml", "a policy file has one width for each node"),
    ]:
        with pytest.raises((UsageError, ModelError), match=message):
            what_if(model, text, data, WhatIfOptions(search=False))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:15", (12, 13, 14, 15)),
        ("12:18:3", (12, 15, 18)),
        ("14, 12,14", (12, 14)),
        ("9", (9,)),
        ("12:14,20", (12, 13, 14, 20)),
        ("a=3,a=5:6", (3, 5, 6)),
        ("a=3,4:5", (4, 5)),
        ("a=4:5,7", (4, 5)),
        ("a=4,7", (7,)),
        ("a=1:2,4:5", (4, 5)),
    ],
)
def test_widths_are_ranges_or_lists(text, expected):
    assert variants.read_widths(text).swept.value == expected


REFUSED = "20:12 a 12: 12:20:0 -3 1.5 12,,14 ² a= =12 a=b a=12: p.toml"


@pytest.mark.parametrize("text", ["", *REFUSED.split()])
def test_other_widths_are_refused(text):
    with pytest.raises(UsageError):
        variants.read_widths(text)


def test_what_does_not_fit_is_told_in_a_line(tmp_path):
    model, data = networks.model(tmp_path / "m.onnx"), tmp_path / "d.npz"
    np.savez(data, x=np.zeros((3, 2, 6, 6), np.float32), labels=np.array([1, 2, 10]))
    with pytest.raises(InputError, match="a label is 10, but the model has 10 classes"):
        what_if(model, "12", data)
    failing = tmp_path / "own.py"
    failing.write_text("def bad(outputs, labels):\n    raise ValueError('oh')\n")
    with pytest.raises(InputError, match=r"raised ValueError: oh .*line 2"):
        what_if(model, "12", data, WhatIfOptions(metric=f"{failing}:bad"))
    networks.data(data, labels=False)
    with pytest.raises(InputError, match="needs labels"):
        what_if(model, "12", data, WhatIfOptions(metric="top1"))
    for widths in ("1:4", "60:65"):
        with pytest.raises(UsageError, match="Widths from 2 to 64"):
            what_if(model, widths, data)
    with pytest.raises(UsageError, match="overflow 'error'"):
        what_if(model, "12", data, WhatIfOptions(overflows=("error",)))
    table = tmp_path / "e.toml"
    table.write_text('unit = "pJ"\n[mul]\nbits = "operands"\npolynomial = [1]\n'
                     '[add]\nbits = "accumulator"\ntable = {16 = 1, 32 = 2}\n')  # fmt: skip
    with pytest.raises(InputError, match="says nothing of 12 bits"):
        what_if(model, "12:14", data, WhatIfOptions(energy=str(table), search=False))
    (one,) = what_if(model, "16:18", data, WhatIfOptions(energy=str(table), search=False)).variants
    assert one.answer.rows[0].energy < one.answer.rows[-1].energy


def test_a_model_without_sums_of_products_is_told(tmp_path):
    from tests.graphs import parse

    onnx.save(parse('<ir_version: 9, opset_import: ["": 20]> g (float[N,4] x) => (float[N,4] y)'
                    " { y = Relu (x) }"), tmp_path / "m.onnx")  # fmt: skip
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 4), np.float32))
    with pytest.raises(ModelError, match="nothing in it was quantised"):
        what_if(tmp_path / "m.onnx", "12", tmp_path / "d.npz")


@pytest.mark.nightly
def test_noise_hides_the_scores_of_a_detector_and_channel_noise_does_not(tmp_path):
    random = np.random.default_rng(1)
    data = tmp_path / "d.npz"
    np.savez(data, x=random.random((32, 4, 8, 8), np.float32))
    onnx.save(detector(), tmp_path / "d.onnx")
    keeping = QuantizationOptions(exclude=("join",))
    model = tracer.quantize(tmp_path / "d.onnx", data, options=keeping).save(tmp_path / "q.onnx")
    widths = {}
    for metric in ("noise", "channel-noise@1"):
        options = WhatIfOptions(search=False, metric=metric, accuracy_budget=2)
        result = what_if(model, "boxes=30,8:24", data, options)
        (one,) = result.variants
        widths[metric] = one.answer.uniform.widths
        hint = [note for note in result.notes if "Give options.metric channel-noise@1" in note]
        assert len(hint) == (metric == "noise")
    place = [work.node for work in one.work].index("classes")
    assert widths["noise"][place] == 2  # any width will do: boxes decide
    outputs = {}
    for bits in (widths["channel-noise@1"][place], widths["noise"][place], 30):
        tracer.interpret(
            model, accumulator=f"boxes=30,classes={bits}", inputs=data,
            receive=lambda _, values, bits=bits: outputs.update({bits: values[0]}),
        )  # fmt: skip
    wide, narrow = outputs.pop(30)[:, 4:], [each[:, 4:] for each in outputs.values()]
    shares = [((wide - each) ** 2).sum() / (wide**2).sum() for each in narrow]
    assert shares[0] < 0.03 < 0.1 < shares[1]
