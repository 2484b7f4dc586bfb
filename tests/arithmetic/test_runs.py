"""Kernels and whole models are replayed with the bits of the session that runs the model itself."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import tracer
from tracer.arithmetic import runs
from tracer.arithmetic.kernel import NotKnown
from tracer.arithmetic.replays import KnownRules
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.inputs.request import make_feeds

MODELS = Path(__file__).parents[2] / "models"


def parse(text):
    return loading.from_proto(onnx.parser.parse_model(text))


def verdicts_of(model, rules, level, threads=1):
    """Returns the verdicts on the kernels of a model, and for each output whether bits are equal.

    The outputs are those of a session on the model itself, and of the replay without onnxruntime.
    """
    settings = OrtSettings(optimization=level, threads=threads)
    graph, feeds = runs.SavedGraph.of(model, settings), make_feeds(model).feeds
    verdicts = list(runs.compare_kernels(graph, rules.of, graph.runner(model)(feeds)))
    replayed = runs.replay_graph(graph, rules.of, feeds).outputs
    expected = runs.outputs_of(model, settings)(feeds)
    return verdicts, [replayed[name].tobytes() == expected[name].tobytes() for name in expected]


def test_a_quantised_model_is_replayed_to_the_bit(tmp_path):
    rules = KnownRules(tmp_path)
    model = loading.load(MODELS / "lenet/lenet.int8.onnx")
    verdicts, outputs = verdicts_of(model, rules, "all")
    assert all(verdict.is_equal for verdict in verdicts)
    assert outputs == [True]


def test_weights_that_a_feed_may_replace_are_packed_by_no_kernel(tmp_path):
    """One row times such weights has a kernel of its own, without fused multiply-add."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[1, 64] x, float[10, 64] w) => (float[1, 10] y)
        { y = Gemm <transB = 1> (x, w) }""")
    weights = np.random.default_rng(0).standard_normal((10, 64)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    (verdict,), outputs = verdicts_of(loading.from_proto(proto), KnownRules(tmp_path), "all")
    assert verdict.rule is not None
    assert verdict.is_equal
    assert outputs == [True]


def test_a_stored_rule_is_that_which_was_found(tmp_path):
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[4, 6] x) => (float[4, 6] y) { y = Add(x, x) }""")
    found, revealed = KnownRules(tmp_path, announce=lambda kernel: None), []
    (first,), _ = verdicts_of(model, found, "all")
    found.store()
    stored = KnownRules(tmp_path, announce=revealed.append)
    (second,), _ = verdicts_of(model, stored, "all")
    assert first.rule == second.rule is not None
    assert not revealed
    anew = KnownRules(tmp_path, anew=True, announce=revealed.append)
    verdicts_of(model, anew, "all")
    assert len(revealed) == 1


def test_a_rule_that_does_not_hold_is_told_by_its_ulps(tmp_path):
    """The values that the rule is compared with are changed by one step."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[3] x) => (float[3] y) { one = Constant <value = float[1] {1.0}> ()
            y = Mul(x, one) }""")
    graph = runs.SavedGraph.of(model, OrtSettings(optimization="none", threads=1))
    values = dict(graph.runner(model)({"x": np.array([1, 2, 4], np.float32)}))
    values["y"] = np.nextafter(values["y"], np.float32(9))
    values["y"][0] = 1
    verdict = list(runs.compare_kernels(graph, KnownRules(tmp_path).of, values))[-1]
    assert (verdict.equal, verdict.size, verdict.ulps) == (1, 3, 1)


def test_a_node_with_graphs_is_replayed_kernel_by_kernel(tmp_path):
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
        net (bool c, float[3] x) => (float[3] y) {
            z = Neg(x)
            y = If (c) <
                then_branch = yes () => (float[3] a) <float[3] w = {1.5, 2.5, 0.1}>
                    { a = Mul(z, w) },
                else_branch = no () => (float[1] b) <float[1] w = {0.3}> { b = Sub(w, z) }> }""")
    graph = runs.SavedGraph.of(model, OrtSettings(threads=1, optimization="none"))
    rules, x = KnownRules(tmp_path), np.array([1.5, -2.25, 0.1], np.float32)
    for chosen in (True, False):
        feeds = {"c": np.array(chosen), "x": x}
        values = graph.runner(model)(feeds)
        verdicts = list(runs.compare_kernels(graph, rules.of, values))
        assert [each.is_equal for each in verdicts] == [True, True]
        replayed = runs.replay_graph(graph, rules.of, feeds).outputs["y"]
        assert replayed.tobytes() == values["y"].tobytes()


def test_what_neither_rule_nor_interpreter_has_is_not_known(tmp_path):
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
        net (string[2] x) => (string[2] y) { y = Identity(x) }""")
    graph = runs.SavedGraph.of(model, OrtSettings(threads=1))
    feeds, rules = {"x": np.array(["a", "b"], object)}, KnownRules(tmp_path)
    (verdict,) = runs.compare_kernels(graph, rules.of, graph.runner(model)(feeds))
    assert verdict.reason == "its inputs are no tensors of numbers"
    assert not verdict.is_equal
    with pytest.raises(NotKnown, match=r"Identity .*no tensors of numbers"):
        runs.replay_graph(graph, rules.of, feeds)


@pytest.mark.parametrize(
    ("first", "second", "steps"),
    [
        (1.0, np.nextafter(np.float32(1), np.float32(2)), 1),
        (-0.0, 0.0, 0),
        (np.float32(1e-45), -np.float32(1e-45), 2),
        (np.nan, 1.0, np.inf),
        (np.nan, np.nan, 0),
    ],
)
def test_ulps_are_the_floats_between(first, second, steps):
    pair = (np.array([each], np.float32) for each in (first, second))
    assert runs.ulps(*pair) == steps


def test_ulps_of_doubles_are_counted_one_by_one():
    """Their bits are integers that a double cannot hold."""
    next_one = np.nextafter(np.ones(1), 2)
    assert runs.ulps(np.ones(1), next_one) == 1
    assert runs.ulps(-next_one, -np.ones(1)) == 1
    assert runs.ulps(np.full(1, 5e-324), np.full(1, -5e-324)) == 2
    assert runs.ulps(np.full(1, -np.inf), np.full(1, np.inf)) == pytest.approx(2**64 - 2**53)


def test_one_nan_is_like_another_in_a_digest(tmp_path):
    """onnxruntime's Softplus of NaN has another sign than the C library's."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[5] x) => (float[5] y) { y = Softplus(x) }""")
    for nan in (np.nan, -np.nan):
        x = np.array([1, nan, 2, nan, nan], np.float32)
        replayed = tracer.replay(model, threads=1, inputs={"x": x}, in_process=True)
        (output,) = replayed.outputs
        assert replayed.equal == 1
        assert output.replayed == output.sha256


def test_nodes_of_several_outputs_count_once_and_infinities_differ_by_nothing(tmp_path):
    """Of negative numbers, log(relu(x)) is infinite, and the root NaN."""
    path = tmp_path / "net.onnx"
    onnx.save(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[40] x) => (float[40] y) { a, b = Split (x)
            c = Relu(a) d = Log(c) e = Sqrt(b) y = Concat <axis = 0> (d, e) }"""),
        path,
    )
    sides = [f"{path}@ort:none"] * 2
    (side,) = tracer.compare_bits(sides, threads=[1], in_process=True).sides
    assert side.is_equal
    assert side.nodes == 5
    assert side.outputs[0].largest == 0


IN_A_BODY_OF_A_BODY = """<ir_version: 9, opset_import: ["": 17]>
g (float[2, 3] x, bool a, bool b) => (float[2, 3] y) {
    y = If (a) <then_branch = first () => (float[2, 3] t) {
            t = If (b) <then_branch = second () => (float[2, 3] u) {
                    c = Constant<value = float[3] {1, 2, 3}>()
                    u = Add(x, c)
                }, else_branch = third () => (float[2, 3] v) { v = Exp(x) }>
        }, else_branch = fourth () => (float[2, 3] e) { e = Neg(x) }>
}"""


def test_constants_of_bodies_in_bodies_are_replayed_and_confirmed():
    """onnxruntime saves them twice without optimisation, and would not load that graph itself."""
    model = onnx.parser.parse_model(IN_A_BODY_OF_A_BODY)
    feeds = {"x": np.ones((2, 3), np.float32), "a": np.array(True), "b": np.array(True)}
    replayed = tracer.replay(model, optimization="none", inputs=feeds, in_process=True)
    assert replayed.equal == len(replayed.kernels) == 1
    found = tracer.fusions(model, optimization="none", inputs=feeds, in_process=True)
    assert set(found.to_pandas()["values"].dropna()) == {"confirmed"}


NUMBERS = {
    "ordinary": lambda x: x,
    "NaN": lambda x: np.where(x > 1, np.nan, x),
    "infinities": lambda x: np.where(x > 1, np.inf, x),
    "huge numbers": lambda x: x * 1e37,
    "tiny numbers": lambda x: x * 1e-40,
}
NODES = {
    "TopK": "(float[7, 31] x) => (float[7, 5] y)"
    " { k = Constant <value_ints = [5]> () y, at = TopK(x, k) }",
    "ArgMax": "(float[7, 31] x) => (int64[7, 1] y) { y = ArgMax <axis = 1> (x) }",
    "Hardmax": "(float[7, 31] x) => (float[7, 31] y) { y = Hardmax(x) }",
    "MaxPool": "(float[1, 2, 9, 9] x) => (float[1, 2, 7, 7] y, int64[1, 2, 7, 7] at)"
    " { y, at = MaxPool <kernel_shape = [3, 3]> (x) }",
    "DynamicQuantizeLinear": "(float[7, 31] x) => (uint8[7, 31] y, float s, uint8 z)"
    " { y, s, z = DynamicQuantizeLinear(x) }",
    "DFT": "(float[2, 16, 1] x) => (float[2, 16, 2] y) { y = DFT <axis = 1> (x) }",
    "GridSample": "(float[1, 2, 6, 6] x) => (float[1, 2, 6, 3] y) {"
    " s = Constant <value_ints = [1, 6, 6, 2]> () g = Reshape(x, s) y = GridSample(x, g) }",
    "Einsum": '(float[13] x) => (float[13, 13] y) { y = Einsum <equation = "i,j->ij"> (x, x) }',
}
NOT_KNOWN = {
    "TopK": ("NaN",),
    "Hardmax": ("NaN",),
    "DynamicQuantizeLinear": ("NaN",),
    "DFT": ("infinities",),
    "GridSample": ("NaN", "infinities", "huge numbers"),
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", NODES)
def test_no_rule_is_claimed_for_numbers_that_it_fails_with(tmp_path, name, kind):
    text = NODES[name].removeprefix("(")
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> net ({text}')
    graph = runs.SavedGraph.of(model, OrtSettings(optimization="none", threads=1))
    shape = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(3).standard_normal(shape)
    values = graph.runner(model)({"x": NUMBERS[kind](x).astype(np.float32)})
    verdicts = list(runs.compare_kernels(graph, KnownRules(tmp_path).of, values))
    for verdict in verdicts:
        is_known = kind not in NOT_KNOWN.get(verdict.node.op_type, ())
        assert verdict.is_equal or not is_known
        assert (verdict.rule is not None) == is_known
        assert is_known or kind in verdict.reason


def test_types_that_numpy_lacks_have_rules(tmp_path):
    model = parse("""<ir_version: 10, opset_import: ["" : 21]>
        net (float[3, 40] x) => (bfloat16[3, 40] y, float8e4m3fn[3, 40] z, float[3, 40] back)
        { y = Cast <to = 16> (x) z = Cast <to = 17> (x) back = Cast <to = 1> (y) }""")
    verdicts, outputs = verdicts_of(model, KnownRules(tmp_path), "none")
    assert [verdict.reason for verdict in verdicts] == ["", "", ""]
    assert outputs == [True, True, True]
