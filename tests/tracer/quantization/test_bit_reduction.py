"""Numbers of fewer bits against ONNX's own 4-bit types, and against numpy for the other widths."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from models import families
from tests.interpreter.models import onnxruntime, quick
from tests.tracer.quantization.test_static import batches, net
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization.bit_reduction import narrow
from tracer.quantization.options import QuantizationOptions as Options
from tracer.quantization.quantizer import quantize

RANDOM = np.random.default_rng(8)


def pair(scale: float, zero: int, kind: int = TensorProto.UINT8) -> onnx.ModelProto:
    """x, quantised and dequantised."""
    body = "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)"
    text = f"(float[N] x) => (float[N] y) {{ {body} }}"
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    proto.graph.initializer.append(helper.make_tensor("s", TensorProto.FLOAT, [], [scale]))
    proto.graph.initializer.append(helper.make_tensor("z", kind, [], [zero]))
    return proto


def weights_of(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {w.name: numpy_helper.to_array(w) for w in proto.graph.initializer}


@quick
@given(st.floats(1 / 64, 4, width=32), st.integers(0, 255), st.booleans())
def test_four_bits_are_what_the_4_bit_types_of_onnx_are(scale, zero, signed):
    kind, four = (
        (TensorProto.INT8, TensorProto.INT4) if signed else (TensorProto.UINT8, TensorProto.UINT4)
    )
    narrowed = narrow(pair(scale, zero - 128 if signed else zero, kind), activation_bits=4)
    weights = weights_of(narrowed)
    native = pair(float(weights["s"]), int(weights["z"]), four)
    x = (RANDOM.normal(0, 150, 500) * scale).astype(np.float32)
    (expected,) = ReferenceEvaluator(native).run(None, {"x": x})
    np.testing.assert_array_equal(Interpreter(narrowed).run(None, {"x": x})[0], expected)
    np.testing.assert_array_equal(onnxruntime(narrowed, {"x": x})[0], expected)


@quick
@given(st.integers(2, 7), st.floats(1 / 64, 4, width=32), st.integers(0, 255))
def test_the_steps_of_an_activation_span_its_range(bits, scale, zero):
    narrowed = narrow(pair(scale, zero), activation_bits=bits)
    low, high = -zero * scale, (255 - zero) * scale
    step = float(weights_of(narrowed)["s"])
    assert step == pytest.approx(255 / (2**bits - 1) * scale, rel=1e-6)
    x = np.linspace(low - 9 * scale, high + 9 * scale, 4001, dtype=np.float32)
    (y,) = Interpreter(narrowed).run(None, {"x": x})
    assert len(np.unique(y)) == 2**bits
    inside = (x >= low) & (x <= high)
    assert np.abs(y - x)[inside].max() <= step * (1 + 1e-5)  # half a step, and half of the zero's
    assert 0 in y


@pytest.mark.parametrize("bits", [2, 3, 5, 7])
@pytest.mark.parametrize("options", [Options(), Options(per_channel=False, weight_type="uint8")])
def test_weights_are_rounded_to_the_steps_of_their_largest(bits, options):
    proto = quantize(loading.from_proto(net()), batches(2), options).proto
    before, after = (weights_of(p) for p in (proto, narrow(proto, weight_bits=bits)))
    name = next(n for n in before if n.startswith("ConvBnFusion_W") and n.endswith("_quantized"))
    base = name.removesuffix("_quantized")

    def real(weights):
        scale, zero = (weights[f"{base}_{part}"].reshape(-1, 1) for part in ("scale", "zero_point"))
        return (weights[name].reshape(3, -1) - zero.astype(float)) * scale

    levels = [len(np.unique(row)) for row in after[name].reshape(3, -1)]
    assert max(levels) <= 2**bits
    signed = after[name].dtype == np.int8
    limit = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    assert np.abs(after[name].astype(int)).max() == limit
    step = after[f"{base}_scale"].reshape(-1, 1)
    assert (np.abs(real(after) - real(before)) <= step * (0.5 if signed else 1) * 1.0001).all()


@pytest.mark.parametrize(("weights", "activations"), [(4, None), (None, 4), (3, 5)])
def test_narrowed_graphs_run_alike_everywhere_and_sum_in_integers(weights, activations):
    given_ = batches(2)
    proto = quantize(loading.from_proto(net()), given_).proto
    narrowed = narrow(proto, weights, activations)
    onnx.checker.check_model(narrowed, full_check=True)
    (ours,) = Interpreter(narrowed).run(None, given_[0])
    (theirs,) = onnxruntime(narrowed, given_[0])
    np.testing.assert_allclose(ours, theirs, atol=np.abs(theirs).max() / 4)
    assert np.median(np.abs(ours - theirs)) <= 1e-5
    model = loading.from_proto(narrowed)
    emulation = AccumulatorEmulation(model, parse_policy("Conv=32,Gemm=32"))
    (exact,) = Interpreter(model, wrap_kernel=emulation.wrap).run(None, given_[0])
    np.testing.assert_array_equal(exact, ours)
    assert set(emulation.accumulations()) == {"c", "y"}


def test_widths_of_sums_know_the_bits():
    """A 4-bit activation times a 4-bit weight, 18 terms: the bias is part of the sum."""
    proto = quantize(loading.from_proto(net()), batches(2)).proto
    bits = {}
    for activations in (8, 6, 4):
        model = loading.from_proto(narrow(proto, 4, activations))
        emulation = AccumulatorEmulation(model, parse_policy("Conv=32"))
        Interpreter(model, wrap_kernel=emulation.wrap).run(None, batches(1)[0])
        bits[activations] = emulation.accumulations()["c"].guaranteed
    assert bits[8] - bits[6] == bits[6] - bits[4] == 2
    model = loading.from_proto(narrow(proto, None, 4))
    unit = TensorScales(model).of("x_DequantizeLinear_Output", model.scopes[0])
    assert unit is not None
    assert unit.high - unit.low == 15


def test_fewer_bits_lose_accuracy_step_by_step():
    model = loading.load(families.shipped("lenet", "torch"))
    data = list(open_dataset("digits", model, limit=128).batches(64))
    feeds = [batch.inputs for batch in data]
    labels = np.concatenate([batch.labels for batch in data])
    wide = quantize(model, feeds, Options(weight_type="int16")).proto
    right = {}
    for bits in (8, 4, 2):
        interpreter = Interpreter(narrow(wide, bits, bits))
        outputs = np.concatenate([interpreter.run(None, batch)[0] for batch in feeds])
        right[bits] = (outputs.argmax(1) == labels).mean()
    assert right[8] >= 0.96
    assert right[8] >= right[4] >= right[2]
    assert right[2] < 0.9


def test_what_is_refused():
    proto = quantize(loading.from_proto(net()), batches(1)).proto
    with pytest.raises(UsageError, match=r"^1 bit for node .* Give from 2 to 8"):
        narrow(proto, weight_bits=1)
    with pytest.raises(UsageError, match=r"9 bits for node .* uint8"):
        narrow(proto, activation_bits=9)
    operators = quantize(loading.from_proto(net()), batches(1), Options(format="qoperator")).proto
    with pytest.raises(ModelError, match=r"only graphs in qdq form .*no QuantizeLinear"):
        narrow(net(), weight_bits=4)
    with pytest.raises(ModelError, match=r"only graphs in qdq form.*QLinearConv"):
        narrow(operators, weight_bits=4)
