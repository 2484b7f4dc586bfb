"""onnxruntime's quantised operators in narrow accumulators against sums of Python integers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import tracer
from tests.accumulators.nodes import int8, narrowed, plain, saturated, uint8
from tracer.accumulators.nodes import lowerings
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError
from tracer.graph.operators import MULTIPLYING, WIDE
from tracer.interpreter.operators import standard

RANDOM = np.random.default_rng(11)


def model(body: str, **weights: np.ndarray) -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["": 20, "com.microsoft": 1]> g'
    proto = onnx.parser.parse_model(f"{head} {body}")
    for name, value in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return proto


def quantised(sums, factor, zero):
    return np.clip(np.rint((sums * factor).astype(np.float32)) + zero, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("bits", [9, 13, 16, 32])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_qgemm(bits, turned, biased):
    x, w = uint8(4, 30), int8(30, 5)
    bias = RANDOM.integers(-2000, 2000, 5).astype(np.int32)
    scales = np.linspace(0.1, 0.3, 5, dtype=np.float32)
    proto = model(
        "(uint8[4,30] x) => (uint8[a,b] y) { y = com.microsoft.QGemm"
        f" <transB = {int(turned)}> (x, s, z, w, t, v, {'c' if biased else ''}, u, q) }}",
        s=np.float32(0.1), z=np.uint8(120), w=w.T.copy() if turned else w, t=scales,
        v=np.zeros(5, np.int8), c=bias, u=np.float32(25), q=np.uint8(128),
    )  # fmt: skip
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    centred = x.astype(np.int64) - 120
    sums = np.array(
        [[saturated((row * w[:, n]).tolist(), bits, bias[n] if biased else 0) for n in range(5)]
         for row in centred]
    )  # fmt: skip
    expected = quantised(sums, np.float32(0.1) * scales / np.float32(25), 128)
    np.testing.assert_array_equal(output, expected)
    exact = centred @ w.astype(np.int64) + (bias if biased else 0)
    (result,) = narrowing.accumulations().values()
    assert result.tally.outputs_changed.sum() == np.count_nonzero(sums != exact)


def test_qgemm_that_cannot_overflow_keeps_the_bits_of_the_plain_interpreter():
    x = uint8(7, 50)
    proto = model(
        "(uint8[7,50] x) => (float[a,b] y) { y = com.microsoft.QGemm (x, s, z, w, s, v) }",
        s=np.float32(0.1), z=np.uint8(3), w=int8(50, 6), v=np.int8(0),
    )  # fmt: skip
    np.testing.assert_array_equal(narrowed(proto, parse_policy("32"), x)[0], plain(proto, x))


@pytest.mark.parametrize("bits", [8, 9, 10, 20])
def test_average_pooling(bits):
    proto = model(
        "(uint8[2,3,5,5] x) => (uint8[a,b,c,d] y) { y = com.microsoft.QLinearAveragePool"
        " <kernel_shape = [3,2], pads = [1,0,1,0], strides = [2,1]> (x, s, z, u, q) }",
        s=np.float32(0.5), z=np.uint8(130), u=np.float32(0.25), q=np.uint8(100),
    )  # fmt: skip
    x = uint8(2, 3, 5, 5)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    wide = np.pad(x.astype(np.int64) - 130, ((0, 0), (0, 0), (1, 1), (0, 0)))
    for n, c, i, j in np.ndindex(*output.shape):
        inside = 6 if 0 < i < 2 else 4
        row = wide[n, c, 2 * i : 2 * i + 3, j : j + 2].ravel().tolist()
        assert output[n, c, i, j] == quantised(np.int64(saturated(row, bits)), 2 / inside, 100)


@pytest.mark.parametrize("bits", [8, 10, 20])
def test_global_average_pooling(bits):
    proto = model(
        "(uint8[2,3,4,5] x) => (uint8[a,b,c,d] y)"
        " { y = com.microsoft.QLinearGlobalAveragePool (x, s, z, u, q) }",
        s=np.float32(0.5), z=np.uint8(100), u=np.float32(0.25), q=np.uint8(90),
    )  # fmt: skip
    x = uint8(2, 3, 4, 5)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    rows = (x.astype(np.int64) - 100).reshape(2, 3, 20)
    sums = np.apply_along_axis(lambda row: saturated(row.tolist(), bits), -1, rows)
    np.testing.assert_array_equal(output[..., 0, 0], quantised(sums, 2 / 20, 90))


def additions(second: float) -> onnx.ModelProto:
    return model(
        "(uint8[2,3] a, uint8[3] b) => (uint8[c,d] y)"
        " { y = com.microsoft.QLinearAdd (a, s, z, b, t, z, u, z) }",
        s=np.float32(0.5), t=np.float32(second), z=np.uint8(100), u=np.float32(1),
    )  # fmt: skip


def test_additions_of_one_scale():
    a, b = uint8(2, 3), uint8(3)
    output, _ = narrowed(additions(0.5), parse_policy("8"), a, b)
    exact = a.astype(np.int64) - 100 + b.astype(np.int64) - 100
    np.testing.assert_array_equal(output, quantised(np.clip(exact, -128, 127), 0.5, 100))


def test_additions_of_two_scales_have_no_unit():
    with pytest.raises(ModelError, match="different scales"):
        narrowed(additions(0.25), parse_policy("8"), uint8(2, 3), uint8(3))


def test_nodes_without_a_unit_are_noted_by_reason_and_counted():
    chain = " ".join(
        f"t{i} = com.microsoft.QLinearAdd ({f't{i - 1}' if i else 'a'}, s, z, b, t, z, u, z)"
        for i in range(8)
    )
    proto = model(
        "(uint8[2,3] a, uint8[2,3] b) => (uint8[c,d] t7, uint8[c,d] y)"
        f" {{ {chain} y = com.microsoft.QLinearAdd (a, s, z, b, s, z, u, z) }}",
        s=np.float32(0.5), t=np.float32(0.25), z=np.uint8(100), u=np.float32(1),
    )  # fmt: skip
    (note,) = narrowed(proto, parse_policy("8"), uint8(2, 3), uint8(2, 3))[1].notes
    assert note.startswith("not narrowed: QLinearAdd_0, QLinearAdd_1, ")
    assert note.count("QLinearAdd") == 6
    assert " and 2 more: " in note
    assert "different scales" in note


def test_nodes_with_operands_in_floats_share_a_note_that_names_no_operand():
    proto = model(
        "(float[2,3] a, float[2,3] b, uint8[2,3] c) => (float[2,2] y, float[2,2] z, uint8[2,3] v)"
        " { y = Gemm <transB = 1> (a, b) z = Gemm <transB = 1> (b, a)"
        " v = com.microsoft.QLinearAdd (c, s, p, c, s, p, s, p) }",
        s=np.float32(0.5), p=np.uint8(100),
    )  # fmt: skip
    a, b = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)
    notes = narrowed(proto, parse_policy("8"), a, b, uint8(2, 3))[1].notes
    assert notes == ("not narrowed: Gemm_0, Gemm_1: an operand is not integers times a scale",)


def test_products_are_noted_before_additions():
    proto = model(
        "(uint8[2,3] c, float[2,3] a, float[3,3] b) => (uint8[2,3] v, float[2,3] y)"
        " { s = Add (a, a) y = MatMul (s, b) v = com.microsoft.QLinearAdd (c, s1, p, c, s1, p, s1,"
        " p) }",
        s1=np.float32(0.5), p=np.uint8(100),
    )  # fmt: skip
    a, b = np.ones((2, 3), np.float32), np.ones((3, 3), np.float32)
    notes = narrowed(proto, parse_policy("9"), uint8(2, 3), a, b)[1].notes
    assert notes == (
        "not narrowed: MatMul_1: 's' is not integers times a scale",
        "not narrowed: Add_0: 'a' is not integers times a scale",
    )


def test_integers_such_as_shapes_have_no_fixed_point_numbers():
    proto = model(
        "(int64[2] n, float[2,3] a, float[3,3] b) => (int64[2] m, float[2,3] y)"
        " { m = Add (n, n) y = MatMul (a, b) }"
    )
    n, a, b = np.array([300, 4000]), np.full((2, 3), 0.5, np.float32), np.eye(3, dtype=np.float32)
    doubled, narrowing = narrowed(proto, parse_policy("12", fixed="8:4"), n, a, b)
    np.testing.assert_array_equal(doubled, [600, 8000])
    assert narrowing.notes == ("not narrowed: Add_0: its operands are int64, not floats",)
    assert list(narrowing.accumulations()) == ["MatMul_1"]


def test_an_operator_with_products_inside_is_noted():
    proto = model(
        "(float[1,2,16] q, float[3,3] b) => (float[1,2,16] y, float[3,3] z)"
        " { y = com.microsoft.MultiHeadAttention <num_heads = 1> (q, q, q) z = MatMul (b, b) }"
    )
    q, b = np.ones((1, 2, 16), np.float32), np.ones((3, 3), np.float32)
    _, narrowing = narrowed(proto, parse_policy("12", fixed="8:4"), q, b)
    assert narrowing.notes == (
        "not narrowed: MultiHeadAttention_0: its queries, keys and shares of values are floats "
        "inside one operator, which nothing quantises",
    )


@pytest.mark.parametrize("operator", ["MatMul", "com.microsoft.FusedMatMul"])
def test_a_vector_of_weights_with_a_step_for_each_term_has_no_sum(operator):
    proto = model(
        "(uint8[3,3] x, uint8[2] a) => (float[3] y, float[2] z) {"
        " xd = DequantizeLinear (x, s, p) wd = DequantizeLinear <axis = 0> (w, t, v)"
        f" y = {operator} (xd, wd) ad = DequantizeLinear (a, s, p) z = Add (ad, ad) }}",
        s=np.float32(0.5), p=np.uint8(3), w=int8(3), v=np.zeros(3, np.int8),
        t=np.array([0.1, 0.2, 0.3], np.float32),
    )  # fmt: skip
    x = uint8(3, 3)
    output, narrowing = narrowed(proto, parse_policy("9"), x, uint8(2))
    np.testing.assert_array_equal(output, plain(proto, x, uint8(2)))
    (note,) = narrowing.notes
    assert note.endswith(": the terms of a sum have different scales")


def test_an_operator_that_multiplies_is_narrow_or_says_why_not():
    narrow = {name for _, name in lowerings()}
    assert not MULTIPLYING - narrow - WIDE.keys()
    assert not narrow & WIDE.keys()


def test_operators_that_the_interpreter_lacks_are_those_that_it_has_no_function_for():
    """DeformConv is onnx.reference's, and MatMulFpQ4 has a reason of its own."""
    lacking = {name for name, why in WIDE.items() if "interpreter has no such" in why}
    domains, registry = ("", "com.microsoft", "ai.onnx.preview"), standard()
    known = {name for name in WIDE if any(registry.find(d, name, 25) for d in domains)}
    assert known == WIDE.keys() - lacking - {"DeformConv", "MatMulFpQ4"}


def test_a_product_of_a_contributed_operator_that_stays_wide_is_noted():
    proto = model(
        "(float[2,64] a, uint8[2,3] c) => (float[2,3] y, uint8[2,3] v)"
        " { y = com.microsoft.MatMulBnb4 <K = 64, N = 3, block_size = 64, quant_type = 0> (a, b, s)"
        " v = com.microsoft.QLinearAdd (c, t, p, c, t, p, t, p) }",
        b=uint8(96), s=np.ones(3, np.float32), t=np.float32(0.5), p=np.uint8(100),
    )  # fmt: skip
    a = np.ones((2, 64), np.float32)
    (note,) = narrowed(proto, parse_policy("9"), a, uint8(2, 3))[1].notes
    assert note == "not narrowed: MatMulBnb4_0: its weights are 4-bit floats, which are no integers"


def depthwise(group, zeros):
    """A network of one Conv whose 4 channels of input have scales and zero points of their own."""
    random, outs = np.random.default_rng(0), 8
    stored = {
        "xs": random.uniform(0.01, 0.05, 4).astype(np.float32),
        "xz": np.array(zeros, np.uint8),
        "w": random.integers(-127, 128, (outs, 4 // group, 3, 3)).astype(np.int8),
        "ws": random.uniform(0.001, 0.01, outs).astype(np.float32),
        "wz": np.zeros(outs, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"], axis=1),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=0),
        helper.make_node("Conv", ["d", "v"], ["y"], name="conv", group=group, pads=[1] * 4),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 6, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), stored


@pytest.mark.parametrize("zeros", [[128] * 4, [100, 0, 7, 200]])
def test_channels_of_a_depthwise_convolution_have_scales_of_their_own(zeros, tmp_path):
    """As NNCF quantises them: the terms of a sum are of one channel."""
    proto, stored = depthwise(4, zeros)
    onnx.save(proto, tmp_path / "net.onnx")
    x = np.random.default_rng(1).standard_normal((1, 4, 6, 6)).astype(np.float32)
    received = []
    trace = tracer.interpret(
        tmp_path / "net.onnx", inputs={"x": x}, accumulator=32, in_process=True,
        receive=lambda *args: received.append(args[-1]),
    )  # fmt: skip
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    (found,) = received
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    row = trace.nodes.set_index("node").loc["conv"]
    zero = np.repeat(zeros, 2)[:, None, None, None]
    ends = [stored["w"].astype(int) * end for end in (-zero, 255 - zero)]
    low, high = np.minimum(*ends).sum((1, 2, 3)).min(), np.maximum(*ends).sum((1, 2, 3)).max()
    needed = max(int(-low - 1).bit_length(), int(high).bit_length()) + 1
    if len(set(zeros)) == 1:
        assert row["bits_guaranteed"] == needed
    assert row["bits_observed"] <= needed <= row["bits_guaranteed"]


def test_terms_of_several_scales_are_refused(tmp_path):
    for group in (1, 2):
        proto, _ = depthwise(group, [128] * 4)
        onnx.save(proto, tmp_path / "net.onnx")
        with pytest.raises(ModelError, match="different scales"):
            tracer.interpret(tmp_path / "net.onnx", accumulator=32, in_process=True)
