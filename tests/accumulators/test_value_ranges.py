"""Ranges of tensors against onnxruntime, and guaranteed widths against bounds by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.qcdq import Graph, by_hand, network, sums
from tests.interpreter.models import onnxruntime, quick
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.engine.value_ranges import StoredValues, ValueRange, ValueRanges
from tracer.graph import loading

RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.integers(-7, 8, (5, 12)).astype(np.int8)
STEP, EIGHTH = np.float32(0.25), np.float32(0.125)


def range_of(proto: onnx.ModelProto, name: str) -> ValueRange:
    model = loading.from_proto(proto)
    return ValueRanges(model, StoredValues(model)).of(name, model.scopes[0])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_network_quantised_in_its_graph_has_the_widths_of_its_integers(bits):
    proto, layers = network(bits, bits)
    feed = np.random.default_rng(0).normal(0, 1, (2, 3, 16, 16)).astype(np.float32)
    found = sums(proto, feed)
    assert list(found) == [layer.name for layer in layers]
    for layer in layers:
        mine = found[layer.name]
        assert mine.guaranteed_channels.tolist() == by_hand(layer.weights, layer.low, layer.high)
        assert mine.guaranteed < mine.datatype
        assert mine.tally.acc_max.max() > 0


def gemm(graph: Graph, x: str, weights: np.ndarray = WEIGHTS) -> str:
    """A Gemm of stored integers, whose output are its sums times a step."""
    w = graph.add("DequantizeLinear", graph.constant(weights), graph.constant(STEP))
    return graph.add("Gemm", x, w, name="y", transB=1)


def clipped(graph: Graph, x: str, low: float, high: float) -> str:
    ends = (graph.constant(np.float32(end)) for end in (low, high))
    return graph.add("Clip", x, *ends)


def activations(graph: Graph, kind: str) -> str:
    """Floats that are integers times a step."""
    if kind == "clip before":
        return graph.quantized(clipped(graph, "x", -1, 2), STEP, np.int8(3))
    if kind == "clip behind":
        return graph.quantized("x", STEP, np.uint8(9), (4, 30))
    if kind == "relu before":
        return graph.quantized(graph.add("Relu", "x"), STEP, np.int8(0))
    if kind == "relu behind":
        return graph.add("Relu", graph.quantized("x", STEP, np.int8(-100)))
    if kind == "moved":
        x = graph.quantized("x", STEP, np.int8(0), (-3, 5))
        x = graph.add("Reshape", x, graph.constant(np.array([1, 3, 2, 2])))
        x = graph.add("MaxPool", x, kernel_shape=[1, 1])
        x = graph.add("Transpose", x, perm=[0, 2, 3, 1])
        return graph.add("Flatten", x)
    if kind == "moved integers":
        order = "Transpose", {"perm": [0, 1]}
        return graph.quantized("x", STEP, np.int8(0), (-3, 5), between=order)
    if kind == "joined":
        parts = graph.add("Slice", "x", *map(graph.constant, ([0], [6], [1])))
        wide = graph.quantized(parts, STEP, np.int8(0), (-2, 9))
        low = graph.quantized(parts, STEP, np.int8(0), (-6, 1))
        return graph.add("Concat", wide, low, axis=1)
    if kind == "padded":
        part = graph.add("Slice", "x", *map(graph.constant, ([0], [10], [1])))
        x = graph.quantized(clipped(graph, part, 1, 2), STEP, np.uint8(0))
        return graph.add("Pad", x, graph.constant([0, 1, 0, 1]))
    if kind == "quantised again":
        x = graph.quantized("x", STEP, np.int8(0), (-2, 7))
        return graph.quantized(x, EIGHTH, np.int8(0))
    assert kind == "limits computed"
    high = graph.add("Mul", graph.constant(np.int32(3)), graph.constant(np.int32(4)))
    q = graph.add("QuantizeLinear", "x", graph.constant(STEP), zero := graph.constant(np.int8(0)))
    q = graph.add("Clip", q, zero, graph.add("Cast", high, to=onnx.TensorProto.INT8))
    return graph.add("DequantizeLinear", q, graph.constant(STEP), zero)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("clip before", -4, 8),
        ("clip behind", -5, 21),
        ("relu before", 0, 127),
        ("relu behind", 0, 227),
        ("moved", -3, 5),
        ("moved integers", -3, 5),
        ("joined", -6, 9),
        ("padded", 0, 8),
        ("quantised again", -4, 14),
        ("limits computed", 0, 12),
    ],
)
def test_the_bound_follows_the_range_of_the_inputs(kind, low, high):
    graph = Graph()
    proto = graph.model(gemm(graph, activations(graph, kind)), (1, 12))
    ends = [np.full((1, 12), end, np.float32) for end in (-999, 999)]
    found = sums(proto, *ends, RANDOM.normal(0, 9, (1, 12)).astype(np.float32))["y"]
    assert found.guaranteed_channels.tolist() == by_hand(WEIGHTS.astype(np.int64), low, high)


def test_some_input_reaches_the_bound():
    graph = Graph()
    proto = graph.model(gemm(graph, activations(graph, "clip behind")), (1, 12))
    toward = np.concatenate([np.sign(WEIGHTS), -np.sign(WEIGHTS)]).astype(np.float32)
    found = sums(proto, *(row[None] * 999 for row in toward))["y"]
    one, other = WEIGHTS * np.int64(-5), WEIGHTS * np.int64(21)
    least, most = np.minimum(one, other).sum(1), np.maximum(one, other).sum(1)
    assert found.tally.acc_min.tolist() == least.tolist()
    assert found.tally.acc_max.tolist() == most.tolist()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("between", [None, ("Transpose", {"perm": [0, 1]}), ("Identity", {})])
@quick
@given(st.data())
def test_weights_quantised_in_the_graph_are_those_of_onnxruntime(between, data):
    zero, x_zero = data.draw(st.integers(-9, 9)), data.draw(st.integers(0, 255))
    clip = sorted(data.draw(st.tuples(*[st.integers(-128, 127)] * 2)))
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, 255)] * 2)))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    floats = random.normal(0, 9, (4, 6)).astype(np.float32)
    scale = random.uniform(0.05, 1, 4).astype(np.float32)
    graph, zeros = Graph(), np.full(4, zero, np.int8)
    w = graph.quantized(graph.constant(floats), scale, zeros, tuple(clip), between=between)
    (real,) = onnxruntime(graph.model(w, (1,)), {"x": np.zeros(1, np.float32)})
    x = graph.quantized("x", STEP, np.uint8(x_zero), (low, high))
    y = graph.add("Gemm", x, w, name="y", transB=1)
    found = sums(graph.model(y, (1, 6)), random.normal(0, 99, (1, 6)).astype(np.float32))["y"]
    integers = np.rint(real / scale[:, None]).astype(np.int64)
    ends = low - x_zero, high - x_zero
    if ends[0] <= 0 <= ends[1]:
        assert found.guaranteed_channels.tolist() == by_hand(integers, *ends)
    else:  # by hand, a term may be left out
        assert found.guaranteed <= max(by_hand(integers, *ends))


LIMITS = st.integers(-40, 40).map(lambda eighths: eighths / 8)
STEPS = st.one_of(
    st.just(("relu",)),
    st.just(("moved",)),
    st.tuples(st.just("clip"), LIMITS, LIMITS),
    st.tuples(st.just("pad"), LIMITS),
    st.tuples(st.just("join"), LIMITS, LIMITS),
    st.tuples(st.just("quantized"), st.floats(0.01, 2), st.integers(-128, 127),
              st.integers(-128, 127), st.integers(-128, 127)),
)  # fmt: skip


def step(graph: Graph, x: str, kind: str, *numbers: float) -> str:
    if kind == "relu":
        return graph.add("Relu", x)
    if kind == "moved":
        return graph.add("Transpose", x, perm=[1, 0])
    if kind == "clip":
        return clipped(graph, x, *numbers)
    if kind == "pad":
        pads = graph.constant(np.array([1, 0, 0, 1]))
        return graph.add("Pad", x, pads, graph.constant(np.float32(numbers[0])))
    if kind == "join":
        return graph.add("Concat", x, clipped(graph, x, *numbers), axis=0)
    scale, zero, low, high = numbers
    ends = min(low, high), max(low, high)
    return graph.quantized(x, np.float32(scale), np.int8(zero), ends)


@quick
@given(st.lists(STEPS, min_size=1, max_size=6), st.integers(0, 2**32))
def test_no_value_of_onnxruntime_is_outside_its_range(steps, seed):
    graph, y = Graph(), "x"
    for kind, *numbers in steps:
        y = step(graph, y, kind, *numbers)
    proto = graph.model(y, (4, 3))
    x = np.random.default_rng(seed).normal(0, 3, (4, 3)).astype(np.float32)
    x.flat[:4] = -1e9, 1e9, 0, -0.0
    (seen,) = onnxruntime(proto, {"x": x})
    found = range_of(proto, y)
    assert found.low <= seen.min() and seen.max() <= found.high


def test_a_limit_that_is_computed_from_inputs_limits_nothing():
    graph = Graph()
    low = graph.add("ReduceMin", "x", keepdims=0)
    y = graph.add("Clip", "x", low, graph.constant(np.float32(4)))
    assert range_of(graph.model(y, (1, 12)), y) == ValueRange(dtype=np.dtype(np.float32))


def test_a_computed_constant_is_a_constant_and_a_random_one_is_not():
    graph = Graph()
    two = graph.add("Add", graph.constant(np.float32(1)), graph.constant(np.float32(1)))
    drawn = graph.add("RandomNormal", shape=[1], dtype=1)
    model = loading.from_proto(graph.model(graph.add("Add", two, drawn), (1,)))
    scales, scope = TensorScales(model), model.scopes[0]
    assert scales.constant(two, scope) and scales.value(two, scope) == 2
    assert not scales.constant(drawn, scope) and scales.value(drawn, scope) is None


def test_a_constant_that_cannot_be_computed_is_told_by_the_run():
    graph = Graph()
    wrong = graph.add("Add", *(graph.constant(np.ones(size, np.float32)) for size in (2, 3)))
    model = loading.from_proto(graph.model(graph.add("Identity", wrong), (1,)))
    assert TensorScales(model).value(wrong, model.scopes[0]) is None


@pytest.mark.parametrize("scale", [0, np.nan, np.inf, -1, [], [0.1, 0.2]])
@pytest.mark.parametrize("zero", [np.int8(127), np.uint8(255), np.zeros(0, np.int8)])
def test_odd_parameters_are_told_by_the_run(scale, zero):
    graph = Graph()
    y = graph.quantized("x", np.asarray(scale, np.float32), zero)
    model = loading.from_proto(graph.model(y, (1, 2)))
    scale_ = TensorScales(model).of(y, model.scopes[0])
    assert scale_ is None or scale_.low <= scale_.high
