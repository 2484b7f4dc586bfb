"""Graphs whose float operations are exact: one result in every order, level and precision."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tracer
from models import families
from tests.graphs import parse
from tests.nets import Builder
from tests.tracer.cli.narrow.command import run
from tracer.accumulators.exactness import prove
from tracer.errors import UsageError

LENET = families.FOLDER / "lenet" / "lenet.int8.onnx"
FLOATS = LENET.with_name("lenet.onnx")
LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


class Net(Builder):
    """A quantised graph that grows at its end; scales are powers of two by their exponents."""

    def scaled(self, name, integers, scale, zero=None, axis=0):
        """Stored integers times a scale, or one for each channel."""
        scale = np.asarray(scale, np.float32)
        zero = np.zeros(scale.shape, integers.dtype) if zero is None else zero
        parts = [self.constant(f"{name}_q", integers), self.constant(f"{name}_s", scale)]
        parts.append(self.constant(f"{name}_z", np.asarray(zero)))
        return self.node("DequantizeLinear", name, *parts, axis=axis)

    def rounded(self, name, x, scale, zero=0, kind=np.uint8):
        """A tensor that is quantised and dequantised."""
        s = self.constant(f"{name}_s", np.float32(scale))
        z = self.constant(f"{name}_z", np.asarray(zero, kind))
        return self.node(
            "DequantizeLinear", name, self.node("QuantizeLinear", f"{name}_q", x, s, z), s, z
        )

    def proto(self, output):
        proto = self.model(output, 21)
        proto.ir_version = 10
        for value in proto.graph.output:
            value.CopyFrom(helper.make_tensor_value_info(output, 1, None))
        return proto


def conv(
    weights=None,
    bias=None,
    step=2.0**-4,
    zero=0,
    scale=2.0**-6,
    bias_scale=None,
    out=2.0**-2,
    out_zero=0,
):
    """One layer, quantised after."""
    net, rng = Net("conv", x=("N", 3, 6, 6)), np.random.default_rng(0)
    weights = rng.integers(-64, 65, (4, 3, 3, 3)).astype(np.int8) if weights is None else weights
    bias = np.arange(4, dtype=np.int32) if bias is None else bias
    x = net.rounded("a", "x", step, zero)
    w = net.scaled("w", weights, np.full(4, scale))
    b = net.scaled("b", bias, np.full(4, step * scale if bias_scale is None else bias_scale))
    net.node("Conv", "c", x, w, b)
    return net, net.rounded("y", "c", out, out_zero)


def reason(net, output, node):
    proved = prove(net.proto(output))
    assert set(proved.inexact) == {node}
    assert proved.outputs == {output: False}
    return proved.inexact[node]


def session(proto, level):
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 3
    return ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def test_a_layer_in_powers_of_two_is_exact():
    net, y = conv()
    proved = prove(net.proto(y))
    assert (proved.inexact, proved.after, proved.outputs) == ({}, (), {"y": True})
    assert len(proved.exact) == len(net.nodes)


@pytest.mark.parametrize(
    ("changed", "node", "why"),
    [
        ({"step": 3 * 2.0**-5}, "a_q", "no power of two"),
        ({"scale": 3 * 2.0**-8, "bias_scale": 2.0**-10}, "w", "no power of two"),
        ({"bias_scale": 2.0**-9}, "c", "scale of its bias"),
        ({"bias_scale": 2.0**-11}, "c", "no multiple"),
        ({"weights": np.full((4, 3, 3, 3), 65, np.int8)}, "c", "pairs of products"),
        ({"bias": np.full(4, (1 << 24) - 1, np.int32)}, "c", "above 2^24"),
        ({"out": 2.0**50}, "y_q", "outside"),
    ],
)  # fmt: skip
def test_a_planted_inexactness_is_named(changed, node, why):
    net, y = conv(**changed)
    proved = prove(net.proto(y))
    assert why in proved.inexact[node]
    assert proved.outputs == {"y": False}


def test_the_bound_of_a_sum_is_the_integer_behind_2_to_the_24():
    """Two products of 255 and a bias: one unit more, and float32 lacks an integer."""
    ones = np.full((1, 2), 64, np.int8)
    for over in (0, 1):
        net = Net("g", x=("N", 2))
        w = net.scaled("w", ones, np.float32(1))
        limit = (1 << 24) - 2 * 64 * 255 + over
        net.node(
            "Gemm",
            "g",
            net.rounded("a", "x", 1.0),
            w,
            net.scaled("b", np.array([limit], np.int32), np.ones(1)),
            transB=1,
        )
        assert prove(net.proto("g")).outputs == {"g": not over}


@pytest.mark.parametrize(("exponent", "holds"), [(-15, True), (-16, False)])
def test_a_zero_point_is_added_in_the_unit_of_each_channel(exponent, holds):
    """25 is 13,107,200 times 2^-19; the sums of the other channels need not fit beside it."""
    scales = np.array([2.0**-6, 2.0**-6, 2.0**exponent, 2.0**-6])
    net, y = conv(scale=scales, out_zero=100)
    assert prove(net.proto(y)).outputs == {y: holds}


def test_operators_that_round_are_named_and_what_is_exact_before_them():
    net, y = conv()
    net.node("Flatten", "f", y)
    net.node("Softmax", "p", "f")
    net.node("Relu", "r", "p")
    proved = prove(net.proto("r"))
    assert "Softmax rounds" in proved.inexact["p"]
    assert (proved.after, proved.tensors, proved.outputs) == (("r",), ("f",), {"r": False})


OF_INTEGERS = """<ir_version: 8, opset_import: ["": 18]>
g (int64[2,3] x, uint8[4] u)
=> (int64[2,2] y, uint8[4] b, int64[1] c, int64[2,3] e, int64 f) {
  m = MatMul (x, w)  a = Abs (m)  y = Mod (a, n)  s = BitShift <direction = "LEFT"> (u, two)
  b = BitwiseXor (s, u)  c = GatherND (m, place)  e = Pow (x, n)  f = ReduceSum <keepdims = 0> (m)
}"""


def test_integers_do_not_round_but_where_they_may_be_computed_in_floats():
    stored = {"n": np.int64(7), "two": np.full(4, 2, np.uint8), "place": np.array([[1, 0]])}
    w = np.arange(6, dtype=np.int64).reshape(3, 2) * 2**60 + 12345
    proto = parse(OF_INTEGERS, w=w, **stored)
    proved = prove(proto)
    assert proved.outputs == {"y": True, "b": True, "c": True, "e": False, "f": False}
    power, total = proved.inexact.values()
    assert ("Pow of integers may be" in power, "small multiples" in total) == (True, True)
    x, u = np.array([[1, -2, 3], [2**62, 5, -(2**61)]]), np.array([0, 1, 64, 255], np.uint8)
    expected = (np.mod(np.abs(x @ w), 7), (u << 2) ^ u, (x @ w)[1, :1])
    for level in LEVELS:
        *results, total = session(proto, level).run(["y", "b", "c", "f"], {"x": x, "u": u})
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
        assert total != (x @ w).sum()  # onnxruntime adds int64 in floats


def test_products_of_integers_that_saturate_on_some_processors_are_not_exact():
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (uint8[2,3] x) => (int32[2,2] y, int64[2,3] r) {
      y = MatMulInteger (x, w)  i = Cast <to = 7> (x)  r = Mod <fmod = 1> (i, n) }"""
    proved = prove(parse(text, w=np.ones((3, 2), np.int8), n=np.int64(7)))
    assert proved.outputs == {"y": False, "r": False}
    assert "MatMulInteger of integers may be" in proved.inexact["y"]


@pytest.mark.parametrize(("step", "holds"), [(2.0**-4, True), (3 * 2.0**-5, False)])
def test_quantisers_of_onnxruntime_are_those_of_onnx(step, holds):
    proto = (lambda net, y: net.proto(y))(*conv(step=step))
    for node in proto.graph.node:
        node.domain = "com.microsoft" if node.op_type.endswith("antizeLinear") else ""
    proto.opset_import.add(domain="com.microsoft", version=1)
    proved = prove(proto)
    assert proved.outputs == {"y": holds}
    assert all("no power of two" in why for why in proved.inexact.values())
    x = np.random.default_rng(0).normal(0, 2, (2, 3, 6, 6)).astype(np.float32)
    first, second = (session(proto, level).run(None, {"x": x})[0] for level in LEVELS)
    assert (first == second).all() or not holds


def test_means_divide_by_powers_of_two():
    for size, holds in ((7, False), (8, True)):
        net = Net("mean", x=("N", 3, size, size))
        net.node("GlobalAveragePool", "m", net.rounded("a", "x", 0.5))
        proved = prove(net.proto("m"))
        assert proved.outputs == {"m": holds}
        assert holds or "divides by 49" in proved.inexact["m"]
    net = Net("division", x=("N", 3))
    net.node("Div", "d", net.rounded("a", "x", 0.5), net.constant("n", np.float32(49)))
    assert "Div" in reason(net, "d", "d")


@pytest.mark.parametrize(
    ("steps", "zero", "why"),
    [
        ((0.25, 0.25, 0.25), 0, None),
        ((0.25, 0.5, 0.25), 0, None),
        ((0.25, 0.25, 0.5), 0, "coarser"),
    ],
)
def test_a_quantised_addition_needs_no_rounding(steps, zero, why):
    net = Net("add", x=("N", 4), z=("N", 4))
    a, b = net.rounded("a", "x", steps[0]), net.rounded("b", "z", steps[1])
    net.node("Add", "s", a, b)
    y = net.rounded("y", "s", steps[2], zero)
    assert why is None or why in reason(net, y, "y_q")
    assert prove(net.proto(y)).outputs == {"y": why is None}


@pytest.mark.parametrize(
    ("slope", "holds"), [(0.25, True), (77 * 2.0**-10, True), (0.01, False), (-3.5, True)]
)
def test_products_with_a_slope_are_exact_where_it_has_few_bits(slope, holds):
    x = np.random.default_rng(0).normal(0, 4, (2, 4, 3)).astype(np.float32)
    net = Net("slopes", x=("N", 4, 3))
    net.node(
        "PRelu",
        "p",
        net.rounded("a", "x", 0.25, 100),
        net.constant("s", np.full((4, 1), slope, np.float32)),
    )
    net.node("LeakyRelu", "l", net.rounded("b", "p", 0.5), alpha=slope)
    proto = net.proto(net.rounded("y", "l", 0.25, 128))
    assert prove(proto).outputs == {"y": holds}
    if holds:
        first, second = (session(proto, level).run(None, {"x": x})[0] for level in LEVELS)
        assert (first == second).all()
        assert (first == in_float64(proto, x)).all()


def test_a_sum_that_is_rounded_from_halves_is_not_added():
    for bias, holds in ((1, True), (2, False)):
        net, y = conv(np.full((4, 3, 3, 3), 2, np.int8), np.full(4, bias, np.int32))
        net.node("Add", "s", y, y)
        assert prove(net.proto("s")).outputs == {"s": holds}


def test_an_odd_zero_point_and_a_second_quantiser_are_refused():
    net, _ = conv()
    odd = net.rounded("o", "c", 0.25, 3)
    assert "odd" in reason(net, odd, "o_q")
    net, y = conv()
    again = net.rounded("again", y, 0.5)
    assert "quantises again" in reason(net, again, "again_q")


def test_weights_that_a_feed_replaces_and_bodies_are_not_exact():
    net, y = conv()
    proto = net.proto(y)
    proto.graph.input.append(
        helper.make_tensor_value_info("w_q", onnx.TensorProto.INT8, [4, 3, 3, 3])
    )
    assert prove(proto).outputs == {"y": False}


graphs = st.fixed_dictionaries({
    "seed": st.integers(0, 2**32 - 1), "channels": st.integers(1, 5), "size": st.integers(3, 6),
    "exponents": st.lists(st.integers(-8, 3), min_size=3, max_size=3),
    "most": st.sampled_from([1, 20, 64]), "zero": st.sampled_from([0, 2, 128]),
    "is_added": st.booleans(),
})  # fmt: skip


def random_net(seed, channels, size, most, exponents, zero, is_added, order=None):
    """Conv, perhaps added to itself moved, and Gemm; the Gemm's input channels in an order."""
    rng = np.random.default_rng(seed)
    net = Net("net", x=(4, channels, size, size))
    weights = rng.integers(-most, most + 1, (4, channels, 3, 3)).astype(np.int8)
    steps = 2.0 ** rng.integers(-6, -2, 4)
    first, last = 2.0 ** exponents[0], 2.0 ** exponents[1]
    places = np.arange(channels) if order is None else order
    x = net.node("Gather", "moved", "x", net.constant("places", places), axis=1)
    a = net.rounded("a", x, first, zero)
    b = net.scaled("b", rng.integers(-99, 99, 4).astype(np.int32), steps * first)
    net.node("Conv", "c", a, net.scaled("w", weights[:, places], steps), b, pads=[1] * 4)
    y = net.rounded("y", net.node("Relu", "r", "c"), last)
    if is_added:
        y = net.node("Add", "s", y, net.node("MaxPool", "m", y, kernel_shape=[3, 3], pads=[1] * 4))
        y = net.rounded("t", y, last)
    flat = net.node("Flatten", "f", y)
    matrix = rng.integers(-most, most + 1, (3, 4 * size * size)).astype(np.int8)
    net.node("Gemm", "g", flat, net.scaled("v", matrix, np.full(3, 2.0**-5)), transB=1)
    return net.proto(net.rounded("out", "g", 2.0 ** exponents[2], 128)), rng


def in_float64(proto, x):
    """Computes the graph in float64, by onnx's reference, whose operators take any float."""
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for weight in wide.graph.initializer:
        if weight.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(weight).astype(np.float64)
            weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    return ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float64)})[0]


@settings(max_examples=15, deadline=None)
@given(graphs)
def test_what_is_proved_has_the_same_bits_in_every_order_level_and_precision(drawn):
    proto, rng = random_net(**drawn)
    if not prove(proto).outputs["out"]:
        return
    shape = (4, drawn["channels"], drawn["size"], drawn["size"])
    x = (rng.normal(0, 40, shape) * 2.0 ** drawn["exponents"][0]).astype(np.float32)
    turned, _ = random_net(**drawn, order=np.arange(drawn["channels"])[::-1].copy())
    results = [
        session(each, level).run(None, {"x": x})[0] for each in (proto, turned) for level in LEVELS
    ]
    assert len({each.tobytes() for each in results}) == 1
    assert (in_float64(proto, x) == results[0]).all()


def in_powers_of_two(net, output, folder):
    """A float network in powers of two, which is proved; its outputs at both levels are near."""
    onnx.save(net.model(output), folder / "net.onnx")
    x = np.random.default_rng(3).normal(0, 1, (24, 3, 7, 7)).astype(np.float32)
    np.savez(folder / "data.npz", x=x)
    options = {"exact": True, "metric": "noise", "in_process": True}
    proto = tracer.narrow(folder / "net.onnx", None, folder / "data.npz", **options).proto
    proved = prove(proto)
    assert (proved.inexact, proved.outputs) == ({}, {output: True})
    wanted = session(net.model(output), LEVELS[0]).run(None, {"x": x})[0]
    first, second = (session(proto, level).run(None, {"x": x})[0] for level in LEVELS)
    assert (first == second).all()
    assert np.square(first - wanted).sum() < 0.01 * np.square(wanted).sum()
    return proto


def test_a_mean_of_49_becomes_a_sum_and_a_factor_of_the_next_layer(tmp_path):
    net = Builder("mean", x=("N", 3, 7, 7))
    net.node("Conv", "c", "x", net.weight("cw", 6, 3, 3, 3), net.weight("cb", 6), pads=[1] * 4)
    net.node("GlobalAveragePool", "m", net.node("Relu", "r", "c"))
    net.node(
        "Gemm", "g", net.node("Flatten", "f", "m"), net.weight("gw", 6, 5), net.weight("gb", 5)
    )
    proto = in_powers_of_two(net, "g", tmp_path)
    assert {"Conv"} == {n.op_type for n in proto.graph.node if n.name in ("c", "m")}


@pytest.mark.parametrize("sloped", ["PRelu", "LeakyRelu"])
def test_slopes_are_rounded_to_few_bits(sloped, tmp_path):
    net, slopes = Builder("slopes", x=("N", 3, 7, 7)), np.float32([0.013, -0.4, 0.25, 1.3, 0, 2e-5])
    net.node("Conv", "c", "x", net.weight("cw", 6, 3, 3, 3), net.weight("cb", 6), pads=[1] * 4)
    if sloped == "PRelu":
        net.node("PRelu", "s", "c", net.constant("slopes", slopes.reshape(6, 1, 1)))
    else:
        net.node("LeakyRelu", "s", "c", alpha=0.013)
    net.node("Conv", "d", "s", net.weight("dw", 4, 6, 3, 3), net.weight("db", 4))
    in_powers_of_two(net, "d", tmp_path)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("pooled", [("GlobalMaxPool", {}), ("ReduceMax", {"axes": [2, 3]})])
def test_the_greatest_of_many_and_a_channel_of_nothing_are_exact(pooled, tmp_path):
    """Weights of 1e-16 in one channel, as training leaves them, do not make its scale 2^-60."""
    net, weights = Builder("greatest", x=("N", 3, 7, 7)), np.random.default_rng(0).normal(0, 1, 162)
    weights = weights.reshape(6, 3, 3, 3).astype(np.float32)
    weights[2] *= 1e-16
    net.node("Conv", "c", "x", net.constant("cw", weights), net.weight("cb", 6), pads=[1] * 4)
    net.node(pooled[0], "m", net.node("Relu", "r", "c"), **pooled[1])
    flat = net.node("Flatten", "f", "m")
    net.node("Gemm", "g", flat, net.weight("gw", 6, 5), net.weight("gb", 5))
    in_powers_of_two(net, "g", tmp_path)


def test_a_faint_channel_is_rounded_to_a_unit_in_which_zero_points_are_exact(tmp_path):
    net, weights = Builder("faint", x=("N", 3, 7, 7)), np.random.default_rng(0).normal(0, 1, 162)
    weights = weights.reshape(6, 3, 3, 3).astype(np.float32)
    weights[2] *= 2.0**-12  # its sums are below a step of the result
    net.node("Conv", "c", "x", net.constant("cw", weights), net.weight("cb", 6), pads=[1] * 4)
    net.node("Conv", "d", "c", net.weight("dw", 4, 6, 3, 3), net.weight("db", 4))
    in_powers_of_two(net, "d", tmp_path)


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    """LeNet in powers of two, and the result."""
    pytest.importorskip("sklearn")
    path = tmp_path_factory.mktemp("exact") / "exact.onnx"
    options = {"limit": 32, "test_limit": 32, "in_process": True, "batch": 32}
    return path, tracer.narrow(LENET, None, "digits", exact=True, output=path, **options)


def hashes(path, x):
    """The hashes of the outputs of a model by level, batch and threads."""
    found = set()
    for level in LEVELS:
        for threads, batch in ((1, 1), (2, 8), (1, 16)):
            options = ort.SessionOptions()
            options.graph_optimization_level, options.intra_op_num_threads = level, threads
            running = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            parts = [running.run(None, {"x": x[n : n + batch]})[0] for n in range(0, len(x), batch)]
            found.add(hashlib.sha256(np.concatenate(parts).tobytes()).hexdigest())
    return found


def test_lenet_has_one_hash(lenet):
    path, result = lenet
    x = np.random.default_rng(1).random((16, 3, 32, 32), np.float32)
    (exact,) = hashes(path, x)
    assert len(hashes(FLOATS, x)) > 1
    assert prove(onnx.load(LENET)).inexact  # whether its bits differ is up to the processor
    wide = in_float64(onnx.load(path), x).astype(np.float32)
    assert hashlib.sha256(wide.tobytes()).hexdigest() == exact
    assert result.scores.narrowed >= result.score - 4  # one sample
    assert result.settings["exact"]


@pytest.mark.nightly
def test_the_certificate_is_checked_by_the_proof(lenet, capfd, tmp_path):
    path, result = lenet
    proof = path.with_suffix(".certificate.json")
    stated = json.loads(proof.read_bytes())
    assert stated["exact"]["outputs"] == {"linear_2": True}
    assert result.certificate.exact == prove(onnx.load(path))
    code, _, err = run(capfd, path, "--check-certificate", proof, "--top", 1)
    assert (code, "no input makes a sum overflow" in err) == (0, True)
    stated["exact"]["inexact"] = {"node_linear": "it rounds"}
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(stated))
    code, _, err = run(capfd, path, "--check-certificate", forged, "--top", 1)
    assert (code, "not as exact" in err) == (1, True)


def test_any_model_is_checked(lenet, capfd):
    code, _, err = run(capfd, lenet[0], "--check-exact")
    assert (code, "no float operation rounds: linear_2" in err) == (0, True)
    code, _, err = run(capfd, LENET, "--check-exact")
    assert (code, "no power of two" in err, "may round" in err) == (1, True, True)


@pytest.mark.parametrize(
    ("bits", "options"), [(None, {}), (16, {"exact": True}), (None, {"exact": True, "tile": 8})]
)
def test_widths_and_powers_of_two_exclude_each_other(bits, options):
    with pytest.raises(UsageError, match=r"^one of bits and exact says|^exact is for any"):
        tracer.narrow(LENET, bits, "digits", in_process=True, **options)
