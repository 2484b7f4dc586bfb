"""Sums of networks in QONNX: exact, and with the widths of their own bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.accumulators import a2q
from tests.accumulators.nodes import narrowed, plain
from tests.accumulators.qcdq import Graph, by_hand, sums
from tests.accumulators.qcdq import network as qcdq_network
from tests.interpreter.models import quick
from tests.qonnx.networks import DOMAIN, INPUT, QonnxGraph, a2q_network, network
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.spec.policy import parse_policy
from tracer.graph import loading
from tracer.quantization.to_qonnx import to_qonnx

BITS = [1, 2, 3, 4, 6, 8]


def _inputs(*shape):
    return np.random.default_rng(3).normal(0, 0.4, shape).astype(np.float32)


@pytest.mark.parametrize("bits", BITS)
def test_a_network_has_the_widths_of_its_integers(bits):
    proto, layers = network(bits, bits)
    found = sums(proto, _inputs(2, 3, 16, 16))
    assert list(found) == [layer.name for layer in layers]
    for layer in layers:
        mine = found[layer.name]
        assert mine.guaranteed_channels.tolist() == by_hand(layer.weights, layer.low, layer.high)
        assert mine.tally.bits_observed.max() <= mine.guaranteed <= mine.datatype
        weights = (-1, 1) if bits == 1 else (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)
        reach = layer.weights.shape[1] * max(map(abs, weights)) * max(-layer.low, layer.high)
        assert mine.datatype <= reach.bit_length() + 1


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_wide_accumulators_change_nothing(bits):
    proto, _ = network(bits, bits)
    x = _inputs(2, 3, 16, 16)
    wide, _ = narrowed(proto, parse_policy("32"), x)
    np.testing.assert_allclose(wide, plain(proto, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_qonnx_and_qcdq_of_one_network_have_equal_sums(bits):
    proto, _ = qcdq_network(bits, bits)
    x = _inputs(2, 3, 16, 16)
    theirs, mine = sums(proto, x), sums(to_qonnx(proto), x)
    assert list(mine) == list(theirs)
    for name, each in theirs.items():
        assert mine[name].guaranteed_channels.tolist() == each.guaranteed_channels.tolist()
        assert mine[name].tally.bits_observed.tolist() == each.tally.bits_observed.tolist()
        assert mine[name].datatype == each.datatype


@quick
@given(
    st.integers(1, 8), st.integers(1, 8), st.booleans(), st.booleans(), st.integers(0, 2),
    st.integers(0, 9999),
)  # fmt: skip
def test_sums_are_those_of_integers(bits, weight_bits, signed, narrow, zero, seed):
    """One product of an activation of any kind and weights with a scale for each column."""
    random = np.random.default_rng(seed)
    x = random.normal(0, 4, (3, 12)).astype(np.float32)
    w = random.normal(0, 4, (12, 5)).astype(np.float32)
    steps = (2.0 ** random.integers(-3, 2, (1, 5))).astype(np.float32)
    graph = QonnxGraph()
    a = graph.quant("x", 0.5, zero, bits, signed=int(signed), narrow=int(narrow))
    b = graph.quant(graph.constant(w), steps, 0, weight_bits, op_type="IntQuant")
    found = sums(graph.model(graph.add("MatMul", a, b, name="y"), (3, 12)), x)
    left = _integers(x / np.float32(0.5) + zero, bits, signed, narrow) - zero
    right = _integers(w / steps, weight_bits, True, False)
    tally = found["y"].tally
    prefixes = np.cumsum(left[:, :, None] * right[None], axis=1)
    assert tally.bits_observed.tolist() == [_bits(prefixes[..., n]) for n in range(5)]


def test_certified_networks_overflow_nowhere():
    """Weights within A2Q's budget of magnitudes for 12 bits, and 4-bit activations."""
    random, budget = np.random.default_rng(0), float(a2q.weight_budget(12, 4, False))
    w = random.normal(0, 1, (6, 64))
    w *= budget / np.abs(w).sum(1, keepdims=True)
    integers = np.trunc(w)
    assert (np.abs(integers).sum(1) <= budget).all()
    graph = QonnxGraph()
    a = graph.quant("x", 0.25, 0, 4, signed=0)
    b = graph.quant(graph.constant(np.float32(integers * 0.5)), 0.5, 0, 8, narrow=1)
    proto = graph.model(graph.add("Gemm", a, b, name="y", transB=1), (50, 64))
    worst = np.where(integers > 0, 15, 0)  # the inputs that reach furthest
    x = np.float32(np.concatenate([worst, 15 - worst, random.integers(0, 16, (38, 64))])) / 4
    outputs, narrowing = narrowed(proto, parse_policy("12"), x)
    np.testing.assert_array_equal(outputs, x @ (integers.T * 0.5))
    (found,) = narrowing.accumulations().values()
    assert found.tally.bits_observed.max() <= found.guaranteed <= 12


@pytest.mark.parametrize("is_centred", [False, True])
@pytest.mark.parametrize("width", [14, 18])
def test_networks_of_a2q_overflow_nowhere_at_their_width(width, is_centred):
    proto = a2q_network(width, is_centred)
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, INPUT).astype(np.float32)
    x[:2] = random.integers(0, 2, x[:2].shape)
    outputs, narrowing = narrowed(proto, parse_policy(str(width)), x)
    np.testing.assert_allclose(outputs, plain(proto, x), rtol=1e-5, atol=1e-5)
    assert np.unique(outputs).size > 10
    found = narrowing.accumulations()
    assert list(found) == ["conv1", "conv2", "matmul"]
    for each in found.values():
        assert each.tally.bits_observed.max() <= each.guaranteed <= width
        assert each.guaranteed > width - 4, "the weights are far from their budget"
        assert not each.tally.saturation_events.any()
    _, narrowing = narrowed(proto, parse_policy(str(width - 6)), x)
    assert any(each.tally.saturation_events.any() for each in narrowing.accumulations().values())


@pytest.mark.parametrize(
    ("bias", "scale", "levels", "numbers"),
    [(0, 1, 3, (0, 3)), (-2, 1, 3, (-2, 1)), (-1, 2, 1, (-1, 1)), (-4, 0.5, 15, (-8, 7))],
)
def test_thresholds_make_integers(bias, scale, levels, numbers):
    thresholds = np.sort(np.random.default_rng(1).normal(0, 1, (4, levels)), axis=1)
    graph = QonnxGraph()
    a = graph.add("MultiThreshold", "x", graph.constant(np.float32(thresholds)), domain=DOMAIN,
                  out_dtype="INT4", out_scale=float(scale), out_bias=float(bias))  # fmt: skip
    weights = np.float32(np.random.default_rng(2).integers(-3, 4, (4, 3)))
    b = graph.quant(graph.constant(weights), 1, 0, 3)
    proto = graph.model(graph.add("MatMul", a, b, name="y"), (5, 4))
    (found,) = sums(proto, _inputs(5, 4)).values()
    assert found.guaranteed_channels.tolist() == by_hand(weights.T.astype(np.int64), *numbers)


def test_truncated_numbers_of_version_2():
    graph = QonnxGraph()
    a = graph.quant("x", 0.125, 0, 8, signed=0)
    parameters = (graph.constant(np.float32(each)) for each in (0.125, 0, 8, 2, 4))
    a = graph.add("Trunc", a, *parameters, domain=DOMAIN, rounding_mode="FLOOR", signed=0)
    weights = np.float32(np.random.default_rng(2).integers(-3, 4, (4, 3)))
    b = graph.quant(graph.constant(weights), 1, 0, 3)
    (found,) = sums(
        graph.model(graph.add("MatMul", a, b, name="y"), (5, 4)), _inputs(5, 4)
    ).values()
    assert found.guaranteed_channels.tolist() == by_hand(weights.T.astype(np.int64), 0, 15)


@pytest.mark.parametrize(
    "parameters", [(0.5, 0.25, 4), ("computed", 0, 4), (np.ones((2, 2)), 0, 4), (-0.5, 0, 4)]
)
def test_what_is_no_integer_times_a_scale_is_told(parameters):
    """A zero point between integers, a scale that is computed, is no vector, or is negative."""
    graph = QonnxGraph()
    scale, zero, bits = parameters
    x = graph.add("Identity", "x")
    if isinstance(scale, str):
        named = [
            graph.add("ReduceMax", "x"),
            *(graph.constant(np.float32(n)) for n in (zero, bits)),
        ]
        y = graph.add("Quant", x, *named, domain=DOMAIN, signed=1, narrow=0)
    else:
        y = graph.quant(x, scale, zero, bits)
    model = loading.from_proto(graph.model(y, (2, 2)))
    scales = TensorScales(model)
    assert scales.of(y, model.nodes[-1].scope) is None


def test_nearest_resizing_repeats_integers():
    for mode, is_kept in (("nearest", True), ("linear", False)):
        graph = QonnxGraph()
        x = graph.quant("x", 0.5, 0, 4)
        sizes = graph.constant(np.float32([1, 1, 2, 2]))
        y = graph.add("Resize", x, "", sizes, mode=mode)
        model = loading.from_proto(graph.model(y, (1, 1, 3, 3)))
        found = TensorScales(model).of(y, model.nodes[-1].scope)
        assert (found is not None) == is_kept
        assert found is None or (found.low, found.high) == (-8, 7)


def test_bits_of_parameters_and_products():
    """Bit operations as qonnx counts them: MACs times the bits of both factors."""
    proto, layers = network(3, 2)
    trace = tracer.count(proto)
    rows = trace.nodes.set_index("node")
    for layer in layers:
        row, activation = rows.loc[layer.name], 8 if layer.name == "conv1" else 2
        assert row["bops"] == row["macs"] * 3 * activation
        assert row["param_bytes"] == -(-layer.weights.size * 3 // 8)
    proto, layers = network(1, 1)
    rows = tracer.count(proto).nodes.set_index("node")
    assert rows.loc["conv2", "bops"] == rows.loc["conv2", "macs"]
    assert rows.loc["conv2", "param_bytes"] == layers[1].weights.size // 8


def test_a_float_type_of_few_bits():
    graph = QonnxGraph()
    formats = [np.float32(each) for each in (1, 4, 3, 7, 448)]
    named = [graph.constant(each) for each in formats]
    attributes = {"has_inf": 0, "has_nan": 1, "has_subnormal": 1, "saturation": 1}
    x = graph.add("FloatQuant", "x", *named, domain=DOMAIN, **attributes)
    stored = graph.constant(np.float32(np.random.default_rng(0).normal(0, 1, (8, 4))))
    w = graph.add("FloatQuant", stored, *named, domain=DOMAIN, **attributes)
    proto = graph.model(graph.add("MatMul", x, w, name="y"), (2, 8))
    row = tracer.count(proto).nodes.set_index("node").loc["y"]
    assert (row["bops"], row["param_bytes"]) == (2 * 8 * 4 * 64, 32)


def test_a_width_that_is_too_narrow_overflows():
    proto, _ = network(3, 2)
    x = _inputs(2, 3, 16, 16)
    outputs, narrowing = narrowed(proto, parse_policy("5"), x)
    assert any(found.tally.bits_observed.max() > 5 for found in narrowing.accumulations().values())
    assert not np.allclose(outputs, plain(proto, x))


def _integers(x, bits, signed, narrow):
    """round(clip(x)) by QONNX's definition, int64."""
    if bits == 1 and signed:
        return np.where(x >= 0, 1, -1)
    low = (-(2 ** (bits - 1)) + narrow) if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    return np.rint(np.clip(x, low, high)).astype(np.int64)


def _bits(values):
    """The least width of an accumulator that holds the values: accumulators have 2 bits or more."""
    low, high = int(values.min()), int(values.max())
    return next(b for b in range(2, 65) if -(2 ** (b - 1)) <= min(low, 0) and high < 2 ** (b - 1))


def test_graphs_without_a_quant_have_no_notes():
    graph = Graph()
    assert loading.from_proto(graph.model(graph.add("Relu", "x"), (2,))).notes == ()
