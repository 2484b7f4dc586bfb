"""Models in narrow accumulators: which nodes, in which formats, over several runs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from tests.accumulators.nodes import (
    RANDOM,
    convolved,
    float_model,
    model,
    narrowed,
    plain,
    qdq_conv,
    uint8,
)
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.operand_format import FixedPoint, Formats
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.spec.policy import Policy, parse_policy
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter


def test_floats_as_fixed_point_numbers():
    proto = float_model()
    x = RANDOM.normal(0, 1, (2, 2, 5, 5)).astype(np.float32)
    policy = parse_policy("Conv=14", fixed="8:5/8:7")
    proto.graph.output[0].name = "c"
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    output, _ = narrowed(proto, policy, x)
    stored = {w.name: numpy_helper.to_array(w).astype(np.float64) for w in proto.graph.initializer}
    left = np.clip(np.rint(stored["w"] * 2**7), -128, 127)
    right = np.clip(np.rint(x.astype(np.float64) * 2**5), -128, 127)
    sums = convolved(right, left.astype(np.int64), 14, np.rint(stored["b"] * 2**12), pad=1)
    np.testing.assert_array_equal(output, (sums / 2**12).astype(np.float32))


@pytest.mark.nightly
def test_fine_fixed_point_numbers_come_close_to_floats():
    proto = float_model()
    x = RANDOM.normal(0, 1, (2, 2, 5, 5)).astype(np.float32)
    output, _ = narrowed(proto, parse_policy("62", fixed="24:18"), x)
    np.testing.assert_allclose(output, plain(proto, x), atol=1e-3)


def test_floats_without_a_format_are_refused():
    with pytest.raises(ModelError, match=r"'Conv_0' \(Conv\) has no integer arithmetic.*'x'"):
        AccumulatorEmulation(loading.from_proto(float_model()), parse_policy("16"))


def test_a_named_node_must_add_something_up():
    with pytest.raises(ModelError, match=r"'Relu_1' \(Relu\) adds nothing up"):
        AccumulatorEmulation(loading.from_proto(float_model()), parse_policy("Relu=16"))


def test_an_entry_must_match_something():
    with pytest.raises(UsageError, match="nothere=16"):
        AccumulatorEmulation(loading.from_proto(float_model()), parse_policy("nothere=16"))


def test_an_overflow_can_end_the_run():
    proto, *_ = qdq_conv()
    x = RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    policy = Policy.of(Accumulator(12, "error"))
    with pytest.raises(ModelError, match=r"Conv_4.*leaves \[-2048, 2047\]"):
        narrowed(proto, policy, x)


def test_a_wide_accumulator_has_the_exact_sums_that_floats_round():
    proto, w, bias, xs, ws = qdq_conv()
    x = RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    integers = np.clip(np.rint(x / xs) + 100, 0, 255).astype(np.int64) - 100
    exact = convolved(integers, w, 64, bias) * (xs.astype(np.float64) * ws).reshape(-1, 1, 1)
    output, _ = narrowed(proto, parse_policy("32"), x)
    np.testing.assert_array_equal(output, exact.astype(np.float32))
    np.testing.assert_allclose(output, plain(proto, x), atol=1e-4)


def test_runs_add_up():
    proto, *_ = qdq_conv()
    loaded = loading.from_proto(proto)
    emulation = AccumulatorEmulation(loaded, parse_policy("14"))
    interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap)
    for _ in range(3):
        interpreter.run(None, {"x": RANDOM.normal(0, 3, (1, 2, 5, 5)).astype(np.float32)})
    (accumulation,) = emulation.accumulations().values()
    assert accumulation.tally.outputs.tolist() == [48, 48, 48]


def test_formats_differ_for_activations_and_weights():
    formats = Formats(FixedPoint(8, 5), FixedPoint(4, 3))
    output, _ = narrowed(float_model(), Policy.of(Accumulator(20), formats),
                       np.zeros((2, 2, 5, 5), np.float32))  # fmt: skip
    assert np.isfinite(output).all()


def test_pairs_that_saturate_are_events_and_errors():
    w = np.full((4, 1), 127, np.int8)
    proto = model("(uint8[1,4] a) => (int32[r,c] y) { y = MatMulInteger (a, w) }", w=w)
    policy = parse_policy("32", like=Accumulator(32, order=named("maddubs")))
    output, emulation = narrowed(proto, policy, np.full((1, 4), 255, np.uint8))
    (accumulation,) = emulation.accumulations().values()
    assert output.item() == 2 * 32767
    assert accumulation.tally.saturation_events.sum() == 2
    assert accumulation.tally.overflow(32).overflow_outputs.sum() == 1
    assert accumulation.tally.outputs_changed.sum() == 1
    assert accumulation.tally.max_abs_error.max() == 2 * (64770 - 32767)


@pytest.mark.parametrize("bias", [np.nan, np.inf, 1e30])
def test_a_bias_beyond_fixed_point_is_named(bias):
    proto = model("(float[1,2] x) => (float[1,1] y) { y = Gemm (x, w, b) }",
                  w=np.ones((2, 1), np.float32), b=np.full(1, bias, np.float32))  # fmt: skip
    with pytest.raises(InputError, match=r"Gemm_0.*a bias from .* has no fixed-point number"):
        narrowed(proto, parse_policy("16", fixed="8:4"), np.ones((1, 2), np.float32))


@pytest.mark.parametrize(("order", "shape"), [("chunked", (1, 3)), ("lanes", (3, 1))])
def test_a_size_beyond_the_terms_takes_no_memory(order, shape):
    assert named(f"{order}(999999999)").stages(Terms(3))[0].groups.shape == shape


def test_channels_whose_number_changes_are_counted_as_one():
    proto = model("(uint8[3,K] a, uint8[K,N] b) => (int32[r,c] y) { y = MatMulInteger (a, b) }")
    loaded = loading.from_proto(proto)
    emulation = AccumulatorEmulation(loaded, parse_policy("30"))
    interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap)
    sums = []
    for depth, columns in ((4, 5), (4, 7), (6, 5), (2, 0)):
        a, b = uint8(3, depth), uint8(depth, columns)
        interpreter.run(None, {"a": a, "b": b})
        sums += (a.astype(np.int64) @ b).ravel().tolist()
    (accumulation,) = emulation.accumulations().values()
    assert accumulation.tally.outputs.tolist() == [len(sums)]
    assert (accumulation.tally.final_min.item(), accumulation.tally.final_max.item()) == (
        min(sums),
        max(sums),
    )
    assert accumulation.guaranteed == (6 * 255 * 255).bit_length() + 1
