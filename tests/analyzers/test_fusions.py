"""The map of fusions, on what onnxruntime itself makes of the models."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from tests import nets
from tests.examples import at_night
from tests.graphs import BRANCHES, parse, quantised, residual
from tracer.analyzers.attribution import attribute
from tracer.analyzers.fusions import FOLDED, GROUP, IDLE, OVERHEAD, REMOVED
from tracer.analyzers.fusions.confirmation import CONFIRMED, CONTRADICTED, TIED, WRONG, confirm
from tracer.analyzers.fusions.views import sentences
from tracer.analyzers.timing import RUNTIME, timing
from tracer.api.fusions import fusions
from tracer.api.interpret import interpret
from tracer.containment.activity import silent
from tracer.executors.onnxruntime import calibration
from tracer.executors.onnxruntime.executor import executor
from tracer.executors.settings import OPTIMIZATIONS, OrtSettings
from tracer.graph import loading
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import make_feeds
from tracer.limits import Limits

SHIPPED = Path(__file__).parents[2] / "models"
MODELS = {
    "resnet20": lambda: onnx.load(SHIPPED / "resnet_cifar" / "resnet20.onnx"),
    "resnet20_chainer": lambda: onnx.load(SHIPPED / "resnet_cifar" / "resnet20_chainer.onnx"),
    "transformer": lambda: onnx.load(SHIPPED / "transformer" / "transformer.onnx"),
    "lenet_chainer": lambda: onnx.load(SHIPPED / "lenet" / "lenet_chainer.onnx"),
    "lenet_int8": lambda: onnx.load(SHIPPED / "lenet" / "lenet.int8.onnx"),
    "resnet20_int8": lambda: onnx.load(SHIPPED / "resnet_cifar" / "resnet20.int8.onnx"),
    "mobilenet": nets.mobilenet,
    "encoder": nets.encoder,
    "mlp": nets.mlp,
    "residual": residual,
    "residual_nameless": lambda: residual(named=False),
    "branches": lambda: onnx.parser.parse_model(BRANCHES),
}


@cache
def mapped(name, optimization):
    return fusions(MODELS[name](), optimization=optimization, threads=1)


@cache
def observed(name, optimization):
    """Model, kernels and evidence, for what the map does not show."""
    model = loading.from_proto(MODELS[name]())
    feed_sets = [make_feeds(model, seed=seed) for seed in (0, 1)]
    graph = executor.optimize(
        model, feed_sets[0], OrtSettings(1, 0, None, 1, optimization=optimization)
    )
    return model, graph.kernels, graph.match_tensors(feed_sets, Limits(), silent)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("optimization", at_night(OPTIMIZATIONS, but=["none", "all"]))
@pytest.mark.parametrize("name", MODELS)
def test_every_group_is_confirmed_by_values_on_two_inputs(name, optimization):
    found = mapped(name, optimization)
    assert found.inputs == 2
    groups = [row for row in found.kernels if row.role == GROUP]
    assert bool(groups) == (optimization != "none" and name in GROUPED[optimization])
    assert {row.verdict for row in groups} <= {CONFIRMED}, groups
    assert CONTRADICTED not in {row.verdict for row in found.kernels}


def test_the_headline_counts_every_kernel_whether_it_fuses_nodes_or_not():
    found = mapped("mlp", "none")
    assert all(row.role != GROUP and row.verdict == CONFIRMED for row in found.kernels)
    count = len(found.kernels)
    assert f"all {count} kernels with nodes confirmed" in "\n".join(sentences(found))
    first, *others = found.kernels
    wrong = replace(found, kernels=(replace(first, verdict=CONTRADICTED), *others))
    told = "\n".join(sentences(wrong))
    assert f"{count - 1} of {count} kernels" in told and ", 1 contradicted" in told


GROUPED = {
    # models of which onnxruntime fuses something at each level
    "basic": {"resnet20", "resnet20_chainer", "mobilenet", "encoder", "mlp"},
    "extended": MODELS.keys() - {"branches"},
    "all": MODELS.keys() - {"branches"},
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("optimization", OPTIMIZATIONS)
@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_and_every_node_has_its_place(name, optimization):
    found = mapped(name, optimization)
    for row in found.kernels:
        assert row.nodes or (row.role == OVERHEAD and row.why), row
    for row in found.nodes:
        assert row.kernels or row.fate in (FOLDED, REMOVED, IDLE), row
    groups = {row.nodes for row in found.kernels}
    assert max(Counter(key for group in groups for key in group).values()) == 1


@pytest.mark.one_in(5)
@pytest.mark.parametrize("optimization", OPTIMIZATIONS)
@pytest.mark.parametrize("name", ["transformer", "residual", "branches"])
def test_all_the_time_of_kernels_is_in_rows_of_nodes_or_of_the_runtime(
    name, optimization, monkeypatch
):
    monkeypatch.setattr(calibration, "measure", lambda threads: calibration.Bias(0, 0))
    model = loading.from_proto(MODELS[name]())
    settings = OrtSettings(3, 1, None, 1, optimization=optimization)
    run = executor.profile(model, make_feeds(model), settings, silent).run
    run = replace(run, samples=np.repeat(run.samples[:1], 3, axis=0), use=None)
    table = timing(run, attribute(model, run.kernels))
    every = run.samples[0].sum(dtype=np.float64)
    assert table["time_us_raw"].sum() == pytest.approx(float(every))
    known = {node.key for node in model.nodes}
    assert all(key in known or key.startswith(f"{RUNTIME}:") for key in table.index)


@pytest.mark.parametrize("name", ["resnet20", "encoder", "mobilenet", "mlp"])
def test_a_node_in_the_wrong_group_is_contradicted(name):
    model, kernels, evidence = observed(name, "all")
    groups = list(attribute(model, kernels, evidence))
    places = [place for place, group in enumerate(groups) if len(group) > 1]
    for place in places:
        fewer = [*groups[:place], groups[place][:-1], *groups[place + 1 :]]
        assert confirm(model, kernels, fewer, evidence)[place].word == CONTRADICTED
    for one, other in pairwise(places):
        swapped = list(groups)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        assert confirm(model, kernels, swapped, evidence)[one].word == CONTRADICTED


def trap(named=True):
    """The kernel that bears the name of a Conv and holds the Add and the Relu after it too."""
    model, kernels, evidence = observed("residual" if named else "residual_nameless", "all")
    place = next((p for p, k in enumerate(kernels) if k.name == "c2_nchwc"), None)
    if place is None:
        pytest.skip("this CPU has no blocked layout")
    index = [node.output[0] for node in residual().graph.node].index
    return (
        model,
        kernels,
        evidence,
        place,
        tuple(model.nodes[index(n)].key for n in ("c2", "sum", "r2")),
    )


@pytest.mark.parametrize("quant_format", ["QDQ", "QOperator"])
def test_the_groups_of_a_quantised_network_are_confirmed(quant_format, tmp_path):
    found = fusions(quantised(tmp_path, quant_format))
    assert {row.verdict for row in found.kernels if row.role == GROUP} <= {CONFIRMED}
    assert sum(row.op_type == "QLinearConv" for row in found.kernels) == 2


@pytest.mark.parametrize("name", ["lenet_int8", "resnet20_int8"])
def test_integer_kernels_stand_for_the_quantiser_behind_them_by_names_too(name):
    assert [row for row in mapped(name, "all").kernels if row.named is not None] == []


@pytest.mark.parametrize("named", [True, False])
def test_the_trap_is_confirmed_by_values(named):
    model, kernels, evidence, place, whole = trap(named)
    groups = attribute(model, kernels, evidence)
    assert groups[place] == whole
    assert confirm(model, kernels, groups, evidence)[place].word == CONFIRMED


def renamed(kernels, evidence, tensors):
    """The same kernels without names of their own, their tensors renamed."""
    to = lambda name: tensors.get(name, name)  # noqa: E731
    disguised = [
        replace(
            kernel, name=f"k{place}", node=None, attributes=(),
            inputs=tuple(map(to, kernel.inputs)), outputs=tuple(map(to, kernel.outputs)),
        )
        for place, kernel in enumerate(kernels)
    ]  # fmt: skip
    return disguised, replace(
        evidence, equal={to(n): e for n, e in evidence.equal.items()},
        uninformative={to(n): why for n, why in evidence.uninformative.items()},
    )  # fmt: skip


def test_without_any_name_values_alone_find_the_nodes():
    model, kernels, evidence, place, whole = trap()
    made = {name for kernel in kernels for name in kernel.outputs} - {"y"}
    nameless, known = renamed(kernels, evidence, {name: f"t_{name}" for name in made})
    groups = attribute(model, nameless, known)
    assert groups == attribute(model, kernels, evidence)
    assert groups[place] == whole
    assert attribute(model, nameless)[place] != whole


def test_a_name_that_lies_is_overruled_by_values():
    model, kernels, evidence, place, whole = trap()
    result = kernels[place].outputs[0]
    lying, known = renamed(kernels, evidence, {result: "c2"})
    assert attribute(model, lying)[place][-1] == "c2"
    assert attribute(model, lying, known)[place] == whole
    by_names = confirm(model, lying, attribute(model, lying), known)
    assert by_names[place].word == CONTRADICTED
    assert "'r2'" in by_names[place].why


WASTE = """
<ir_version: 8, opset_import: ["": 17]>
waste (float[N,8] x) => (float[N,8] y) {
  i = Identity (x)
  c = Constant <value = float {2.0}> ()
  cc = Mul (c, c)
  a = Sigmoid (i)
  b = Sigmoid (x)
  ab = Add (a, b)
  t = Tanh (ab)
  r = Dropout (t)
  y = Mul (r, cc)
}
"""


def test_folded_and_removed_nodes_are_named_with_the_reason():
    model = parse(WASTE)
    for node in model.graph.node:
        node.name = node.output[0]
    found = fusions(model)
    fates = {row.node: (row.fate, row.why) for row in found.nodes if not row.kernels}
    twin = next(iter(fates.keys() & {"a", "b"}))
    other = next(iter({"a", "b"} - {twin}))
    assert fates[twin] == (REMOVED, f"'{other}' computes the same values")
    assert {fates[key][0] for key in ("i", "r")} == {REMOVED}
    assert {fates[key][0] for key in ("c", "cc")} == {FOLDED}
    assert fates.keys() == {twin, "i", "r", "c", "cc"}


def test_a_result_that_is_its_input_cannot_be_told_from_it():
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N,8] x) => (float[N,4] y) { e = Gemm (x, w)  s = Sigmoid (e)  y = Relu (s) }
    """
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    found = fusions(parse(text, w=weights), optimization="none")
    verdicts = {row.op_type: (row.verdict, row.why) for row in found.kernels}
    assert verdicts["Gemm"][0] == CONFIRMED
    assert verdicts["Relu"] == (TIED, "'y' has the values of its input")


def test_a_tensor_that_no_input_changes_confirms_nothing():
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N,8] x) => (float[N,8] y) { z = Mul (x, none)  y = Cos (z) }
    """
    found = fusions(parse(text, none=np.zeros(8, np.float32)), optimization="none")
    assert [row.verdict for row in found.kernels] == [TIED, TIED]
    assert found.kernels[0].why == "its result 'z' is 0 everywhere"


def test_nodes_of_bodies_are_mapped_and_confirmed():
    found = mapped("branches", "all")
    rows = {row.nodes: row for row in found.kernels}
    assert rows["If_0",].verdict == CONFIRMED
    inside = [row for row in found.kernels if "/" in row.kernel]
    assert inside
    assert {row.verdict for row in inside} <= {CONFIRMED, TIED}
    idle = [row.node for row in found.nodes if row.fate == IDLE]
    assert len({key.partition(".")[2].partition("/")[0] for key in idle}) == 1


CONVOLUTIONS = """
<ir_version: 10, opset_import: ["": 21]>
g (float[1,8,12,12] x, int64 trips) => (float[1,8,12,12] y) <bool always = {1}> {
  y = Loop (trips, always, x) <
    body = step (int64 i, bool go, float[1,8,12,12] s) => (bool on, float[1,8,12,12] n) {
      on = Identity (go)
      a = Conv <pads = [1, 1, 1, 1]> (s, v)
      b = Relu (a)
      c = Conv <pads = [1, 1, 1, 1]> (b, w)
      d = Relu (c)
      n = Tanh (d)
    }
  >
}
"""


def test_kernels_fused_inside_a_body_are_confirmed_and_wrong_groups_contradicted():
    draw = np.random.default_rng(0).normal
    weights = {name: draw(size=(8, 8, 3, 3)).astype(np.float32) for name in "vw"}
    proto = parse(CONVOLUTIONS, **weights)
    model = loading.from_proto(proto)
    states = [draw(size=(1, 8, 12, 12)).astype(np.float32) for _ in range(2)]
    feed_sets = [FeedSet({"x": state, "trips": np.array(2)}, None) for state in states]
    graph = executor.optimize(model, feed_sets[0], OrtSettings(1, 0, None, 1, optimization="all"))
    evidence = graph.match_tensors(feed_sets, Limits(), silent)
    groups = list(attribute(model, graph.kernels, evidence))
    one, other = (place for place, group in enumerate(groups) if len(group) > 1)
    assert graph.kernels[one].scope == "Loop_0.body"
    verdicts = confirm(model, graph.kernels, groups, evidence)
    assert verdicts[one].word == verdicts[other].word == CONFIRMED
    groups[one], groups[other] = groups[other], groups[one]
    wrong = confirm(model, graph.kernels, groups, evidence)
    assert wrong[one].word == wrong[other].word == CONTRADICTED


STATES = """
<ir_version: 10, opset_import: ["": 21]>
g (float[2,1,8] x) => (float[1,1,8] y, float[1,1,8] z)
<int64 zero = {0}, int64 one = {1}, int64[1] front = {0}> {
  h = Gather (x, zero)
  c = Gather (x, one)
  u = Unsqueeze (h, front)
  v = Unsqueeze (c, front)
  y = Cos (u)
  z = Sin (v)
}
"""


def test_gathers_that_became_one_split_are_confirmed_with_the_kernels_behind_it():
    found = fusions(parse(STATES))
    if not any(row.op_type == "Split" for row in found.kernels):
        pytest.skip("this onnxruntime makes no Split of two Gathers")
    assert {row.verdict for row in found.kernels} <= {CONFIRMED, TIED}
    whole = {node for row in found.kernels if row.op_type == "Split" for node in row.nodes}
    assert whole <= {"Gather_0", "Gather_1"}


def test_a_kernel_that_rounds_to_the_next_step_is_not_fused_wrongly(tmp_path):
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N,10] x) => (float[N,10] y) {
      q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
      p = Softmax <axis = -1> (d)
      pq = QuantizeLinear (p, t, o)  y = DequantizeLinear (pq, t, o)
    }
    """
    stored = {"s": np.float32(5e-4), "z": np.uint8(128), "t": np.float32(1 / 255), "o": np.uint8(0)}
    model = parse(text, **{name: np.asarray(value) for name, value in stored.items()})
    # a tenth is 25.5 steps, which the fused kernel rounds as it likes
    x = np.random.default_rng(0).normal(0, 0.02, (4, 10)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    results = []
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        session = ort.InferenceSession(model.SerializeToString(), options)
        results += session.run(None, {"x": x})
    assert np.abs(results[0] - results[1]).max() < 1.01 / 255
    words = {row.op_type: row.verdict for row in fusions(model, inputs=tmp_path / "x.npz").kernels}
    assert WRONG not in words.values()


def test_weights_of_four_bits_may_be_multiplied_by_rounded_activations():
    """onnxruntime makes MatMulNBits of them, which rounds activations to 8 bits."""
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[3,64] x) => (float[3,8] y) {
      d = DequantizeLinear <axis = 0, block_size = 32> (w, s)  m = MatMul (x, d)  y = Cos (m)
    }"""
    rng = np.random.default_rng(0)
    model = parse(text, s=rng.uniform(0.001, 0.01, (2, 8)).astype(np.float32))
    weights = rng.integers(-8, 8, 64 * 8)
    model.graph.initializer.append(
        helper.make_tensor("w", onnx.TensorProto.INT4, [64, 8], weights.tolist())
    )
    assert {row.verdict for row in fusions(model).kernels} == {CONFIRMED}


def test_a_long_chain_of_one_value_is_compared_by_kinds():
    names = [f"t{i}" for i in range(1001)]
    steps = pairwise(names)
    body = "".join(f"{y} = {('Neg', 'Relu')[i % 2]} ({x})\n" for i, (x, y) in enumerate(steps))
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[4] t0) => (float[4] {names[-1]})'
    found = fusions(parse(f"{text} {{ {body} }}"), optimization="none")
    assert Counter(row.verdict for row in found.kernels)[TIED] > 990


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_sparse_weight_is_read_by_its_kernel_and_compared_with_a_dense_one(is_stored):
    sparse = helper.make_sparse_tensor(
        onnx.numpy_helper.from_array(np.array([5, 7], np.float32), "w"),
        onnx.numpy_helper.from_array(np.array([1, 6]), "places"),
        [4, 2],
    )
    constant = "" if is_stored else "w = Constant ()"
    model = parse(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[3,4] x) => (float[3,2] y) {{ {constant} y = MatMul (x, w) }}""")
    if is_stored:
        model.graph.sparse_initializer.append(sparse)
    else:
        model.graph.node[0].attribute.append(helper.make_attribute("sparse_value", sparse))
    (kernel,) = fusions(model).kernels
    assert kernel.verdict == CONFIRMED
    assert (interpret(model, against="ort").nodes["difference_own"] == 0).all()


def test_text_sequences_and_maps_are_confirmed_by_what_they_hold():
    """As a classifier returns them: its label is text, its scores are maps."""
    text = """
    <ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
    g (float[1,4] x) => (seq(float[1,1]) parts, string[1] label, float[1] scores) {
      a = Neg (x)
      parts = SplitToSequence <axis = 1> (a)
      i = ArgMax <axis = 1, keepdims = 0> (a)
      label = ai.onnx.ml.LabelEncoder
          <keys_int64s = [0, 1, 2, 3], values_strings = ["k", "l", "m", "n"]> (i)
      p = Softmax (a)
      scores = ai.onnx.ml.ZipMap <classlabels_strings = ["k", "l", "m", "n"]> (p)
    }
    """
    proto = onnx.parser.parse_model(text)
    maps = helper.make_map_type_proto(
        onnx.TensorProto.STRING, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    )
    proto.graph.output[2].type.CopyFrom(helper.make_sequence_type_proto(maps))
    result = fusions(proto, in_process=True)
    assert {row.op_type: row.verdict for row in result.kernels} == dict.fromkeys(
        ("Neg", "SplitToSequence", "ArgMax", "LabelEncoder", "Softmax", "ZipMap"), CONFIRMED
    )


def test_a_cast_of_halves_has_the_values_of_its_input():
    """A float32 tensor of halves differs from the interpreter's by more than floats do."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4,64] x) => (float[4,8] y) {
        h = Cast <to = 10> (x)  p = MatMul (h, w)  y = Cast <to = 1> (p)
    }"""
    weights = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float16)
    kernels = fusions(parse(text, w=weights), optimization="none").kernels
    assert {kernel.op_type: kernel.verdict for kernel in kernels}["Cast"] == CONFIRMED
    assert CONTRADICTED not in {kernel.verdict for kernel in kernels}


def test_a_change_of_layout_before_a_normalisation_is_no_part_of_it():
    """The skip connection of a UNet: what a convolution computes is read as it is laid out, too."""
    random = np.random.default_rng(0)
    model = parse("""<ir_version: 10, opset_import: ["": 21]>
        g (float[1,4,16,16] x) => (float[1,8,14,14] y) {
        c = Conv<pads = [1,1,1,1]>(x, w1)  n = GroupNormalization<num_groups = 8>(c, scale, bias)
        r = Sigmoid(n)  cat = Concat<axis = 1>(c, r)  y = Conv(cat, w2) }""",
        w1=random.standard_normal((32, 4, 3, 3), np.float32) / 6,
        w2=random.standard_normal((8, 64, 3, 3), np.float32) / 24,
        scale=random.random(32, np.float32), bias=random.random(32, np.float32),
    )  # fmt: skip
    result = fusions(model, threads=1)
    assert all(kernel.verdict == CONFIRMED for kernel in result.kernels if kernel.nodes)
    moved = [kernel for kernel in result.kernels if kernel.op_type == "ReorderOutput"]
    assert moved and not any(kernel.nodes for kernel in moved)
