"""Terms in another order: partial sums in int64, from the stored integers and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tracer
import tracer.cli
from tests.interpreter.models import quick
from tests.nets import Builder
from tests.tracer.narrowing.oracle import Stored
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import as_policy
from tracer.analyzers.views import render
from tracer.errors import UsageError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.narrowing import samples
from tracer.narrowing.layers import Grid, Layer
from tracer.narrowing.requirement import Need

OPTIONS = {"metric": "noise", "in_process": True, "guarantee": "this-data"}
LAYERS = {
    "Gemm": ((64,), (6, 64), {"transB": 1}),
    "MatMul": ((5, 64), (64, 6), {}),
    "Conv": ((8, 6, 6), (6, 8, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
}
"""Operators: the shapes of what they read and of their weights, and their attributes."""


def halves(folder, op_type):
    """A quantised layer whose weights are positive for half of its channels, and its data.

    All inputs are positive: sums rise over the first half of the terms, and fall over the others.
    """
    shape, stored, attributes = LAYERS[op_type]
    random = np.random.default_rng(1)
    axis = 0 if op_type == "MatMul" else 1
    signs = np.where(np.arange(stored[axis]) < stored[axis] // 2, 1, -1)
    signs = signs.reshape([-1 if each == axis else 1 for each in range(len(stored))])
    weights = signs * random.uniform(0.2, 0.4, stored)
    net = Builder("net", x=("N", *shape))
    bias = [] if op_type == "MatMul" else [net.weight("b", 6)]
    net.node(op_type, "y", "x", net.constant("w", weights.astype(np.float32)), *bias, **attributes)
    onnx.save(net.model("y"), folder / "float.onnx")
    x = random.uniform(0, 1, (60, *shape)).astype(np.float32)
    np.savez(folder / "data.npz", x=x)
    tracer.quantize(folder / "float.onnx", folder / "data.npz", output=folder / "net.onnx",
                    metric="noise")  # fmt: skip
    return folder / "net.onnx", folder / "data.npz"


def integers_read(path, data):
    """The integers (outputs, K) that the terms of the layer `y` are multiplied with."""
    proto = onnx.load(path)
    stored = Stored(proto)
    node = stored.layers["y"]
    name = node.input[0]
    proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    session = ort.InferenceSession(proto.SerializeToString())
    (values,) = session.run([name], dict(np.load(data)))
    step = stored.values[stored.quantize(name).input[1]]
    integers = np.rint(values / step).astype(np.int64)
    if node.op_type != "Conv":
        return integers.reshape(-1, integers.shape[-1])
    padded = np.pad(integers, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, 72)


def reached(path, data, tile=None):
    """The largest magnitudes of a partial sum and of a whole sum, in the order of the terms."""
    stored = Stored(onnx.load(path))
    terms = integers_read(path, data)[:, None] * stored.rows("y")
    first = stored.bias("y") if tile is None else 0 * stored.bias("y")
    starts = range(0, terms.shape[2], tile or terms.shape[2])
    most = 0
    for start in starts:
        part = terms[:, :, start : start + tile] if tile else terms
        sums = np.cumsum(part, 2) + first[:, None]
        most = max(most, np.abs(sums).max())
    return most, np.abs(terms.sum(2) + stored.bias("y")).max()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("op_type", "bits", "tile"),
    [("Gemm", 19, None), ("Gemm", 19, 16), ("MatMul", 19, None), ("Conv", 20, None),
     ("Conv", 19, 16)],
)  # fmt: skip
def test_it_is_chosen_where_partial_sums_alone_leave_the_register(tmp_path, op_type, bits, tile):
    path, data = halves(tmp_path, op_type)
    output, most = tmp_path / "narrow.onnx", (1 << bits - 1) - 1
    result = tracer.narrow(path, str(bits), data, output=output, tile=tile, **OPTIONS)
    (node,) = result.nodes
    assert (node.measure, node.sqnr_db, node.overflows) == ("ordering", None, 0)
    assert result.scores.narrowed == 0 < result.scores.saturated
    (before, whole), (after, same) = (reached(each, data, tile) for each in (path, output))
    assert whole == same
    assert after * 1.25 <= most < before
    assert tile or node.observed == int(after).bit_length() + 1


@pytest.mark.parametrize("op_type", LAYERS)
def test_it_changes_no_value_and_no_weight(tmp_path, op_type):
    path, data = halves(tmp_path, op_type)
    output = tmp_path / "narrow.onnx"
    tracer.narrow(path, "20", data, output=output, **OPTIONS)
    before, after = Stored(onnx.load(path)), Stored(onnx.load(output))
    gather = after.made[after.layers["y"].input[0]]
    assert gather.op_type == "Gather"
    order = after.values[gather.input[1]]
    assert sorted(order) == list(range(len(order)))
    old, new = (each.rows("y").reshape(6, len(order), -1) for each in (before, after))
    assert np.array_equal(old[:, order], new)
    inputs = dict(np.load(data))
    models = [loading.load(each) for each in (path, output)]
    emulation = AccumulatorEmulation(models[1], as_policy("20(overflow=error)"))
    ours = Interpreter(models[1], wrap_kernel=emulation.wrap, fuse=emulation.fuse).run(None, inputs)
    wide = AccumulatorEmulation(models[0], as_policy("32(overflow=error)"))
    want = Interpreter(models[0], wrap_kernel=wide.wrap, fuse=wide.fuse).run(None, inputs)
    assert np.array_equal(ours[0], want[0])
    (theirs,) = ort.InferenceSession(output).run(None, inputs)
    assert np.array_equal(ours[0], theirs)


def test_for_any_input_no_order_helps(tmp_path):
    path, data = halves(tmp_path, "Gemm")
    result = tracer.narrow(path, "20", data, **{**OPTIONS, "guarantee": "any-input"})
    assert result.nodes[0].measure != "ordering"
    assert result.nodes[0].fits


def test_toolchains_without_a_gather_get_no_file(tmp_path):
    path, data = halves(tmp_path, "Gemm")
    result = tracer.narrow(path, "20", data, **OPTIONS)
    for name in ("acc.finn.json", "acc.hls4ml.yml"):
        with pytest.raises(UsageError, match="have no Gather that reorders terms, as before y"):
            result.save(tmp_path / name)
    qdq, quant = result.save(tmp_path / "n.onnx"), result.save(tmp_path / "n.qonnx.onnx")
    inputs = dict(np.load(data))
    (want,) = ort.InferenceSession(qdq).run(None, inputs)
    emulation = AccumulatorEmulation(loading.load(quant), as_policy("20(overflow=error)"))
    interpreter = Interpreter(loading.load(quant), wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    assert np.allclose(interpreter.run(None, inputs)[0], want, rtol=1e-5)
    assert "| ordering |" in render(result, "md").decode()


def test_what_one_file_cannot_hold_loses_no_other_and_not_the_page(tmp_path, capfd):
    path, data = halves(tmp_path, "Gemm")
    names = [tmp_path / name for name in ("n.onnx", "acc.finn.json", "n.csv", "n.qonnx.onnx")]
    outputs = [text for name in names for text in ("-o", str(name))]
    options = ["--bits", "20", "--data", str(data), "--guarantee", "this-data", "--metric", "noise"]
    assert tracer.cli.main(["narrow", str(path), *options, *outputs]) == 2
    out, err = capfd.readouterr()
    assert "ordering" in out
    assert "FINN and hls4ml have no Gather" in err
    assert [name.exists() for name in names] == [True, False, True, True]


@st.composite
def searches(draw):
    """A layer of several channels, what it reads, a tile, and what its sums may reach."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    channels, window = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    rows, depth = draw(st.integers(1, 4)), channels * window
    integers = random.integers(-127, 128, (rows, depth)).astype(float)
    scales = random.uniform(1e-2, 1, rows)
    bias = random.normal(0, 100, rows) if draw(st.booleans()) else None
    grid = Grid(0.5, -draw(st.integers(0, 1)) * 128, 127)
    shape = (rows, channels, window)
    layer = Layer("l", "Conv", integers, scales, bias, grid, shape, False, 1, {})
    inputs = random.integers(grid.low, grid.high + 1, (30, depth)) * grid.step
    tile = draw(st.none() | st.integers(1, depth))
    return layer, inputs, tile, draw(st.floats(0.3, 1.1))


def naive(layer, inputs, order, tile):
    """The largest magnitudes of the partial sums of each row, term by term."""
    has_bias = layer.bias is not None and tile is None
    most = [0.0] * len(layer.weights)
    for row, weights in enumerate(layer.weights):
        for x in inputs:
            total = layer.bias[row] if has_bias else 0.0
            most[row] = max(most[row], abs(total))
            for place in range(len(weights)):
                term = order[place // layer.window] * layer.window + place % layer.window
                total = 0.0 if tile is not None and place % tile == 0 else total
                total += weights[term] * x[term]
                most[row] = max(most[row], abs(total))
    return np.array(most)


@quick
@given(searches())
def test_an_order_is_a_permutation_in_which_all_partial_sums_fit(search):
    layer, inputs, tile, share = search
    channels = layer.depth // layer.window
    most = share * naive(layer, inputs, range(channels), tile)
    assume((most > 0).all())
    order = samples.find_order(layer, inputs, Need(16, tile).registers(layer.depth), most)
    if order is None:  # the search finds none, as others may
        return
    assert sorted(order.tolist()) == list(range(channels))
    assert (naive(layer, inputs, order, tile) <= most * (1 + 1e-9)).all()


@quick
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.floats(0.1, 10))
def test_of_two_sides_no_partial_sum_exceeds_the_largest_term(seed, pairs, spread):
    """Terms that add up to 0 have an order whose partial sums are at most the largest of them."""
    random = np.random.default_rng(seed)
    values = np.rint(random.uniform(1, 1 + spread, pairs) * 10)
    terms = random.permutation(np.concatenate([values, -values]))[None]
    layer = Layer("l", "Gemm", terms, np.ones(1), None, Grid(1.0, 0, 1), terms.shape,
                  False, 1, {})  # fmt: skip
    most = np.abs(terms).max(1)
    registers = Need(16).registers(layer.depth)
    order = samples.find_order(layer, np.ones_like(terms), registers, most)
    assert order is not None
    assert np.abs(np.cumsum(terms[0, order])).max() <= most
