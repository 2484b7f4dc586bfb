"""Each measure on a network for which it is the one that is chosen, against its stored integers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer
from tests.nets import Builder
from tests.tracer.narrowing.oracle import Stored, overflows_on_worst_inputs
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import as_policy
from tracer.analyzers.views import render
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.narrowing import samples
from tracer.narrowing.measures import measures

DEPTH, BUDGET_OF_NONE = 64, 0.001


def net(tmp_path, inputs, shift=0.0, scale=0.3, conv=False):
    """A layer of 64 inputs, or of 8 channels in windows of 3 by 3, and data for it."""
    made = Builder("net", x=("N", 8, 6, 6) if conv else ("N", DEPTH))
    shape = (6, 8, 3, 3) if conv else (6, DEPTH)
    weights = made.weight("w", *shape, scale=scale, shift=shift), made.weight("b", 6)
    attributes = {"pads": [1] * 4, "strides": [2, 2]} if conv else {"transB": 1}
    made.node("Conv" if conv else "Gemm", "y", "x", *weights, **attributes)
    onnx.save(made.model("y"), tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", x=inputs.astype(np.float32))
    return tmp_path / "net.onnx", tmp_path / "data.npz"


def images(random):
    return random.normal(0, 1, (60, 8, 6, 6))


def uniform(random):
    return random.uniform(0, 1, (300, DEPTH))


def spiky(random):
    return uniform(random) * np.where(random.random((300, DEPTH)) < 0.002, 12, 1)


CASES = {
    "weights": (spiky, 18, {}, 100.0),
    "clipping": (spiky, 16, {}, 100.0),
    "activations": (uniform, 16, {}, 100.0),
    "centring": (uniform, 14, {"shift": 1.0, "scale": 0.1}, BUDGET_OF_NONE),
    "splitting": (images, 12, {"conv": True}, BUDGET_OF_NONE),
}
PRODUCTS = """
unit = "products"
mul = { bits = "accumulator", polynomial = [1] }
add = { bits = "accumulator", polynomial = [0] }
"""
"""An energy model that counts products."""
ELSEWHERE = {"operands", "ordering"}
"""Measures of nodes without weights, and of some data: test_narrow.py and test_ordering.py."""


def test_every_measure_has_a_case():
    assert {each.name for each in measures()} == CASES.keys() | ELSEWHERE


@pytest.mark.one_in(3)
@pytest.mark.parametrize("measure", CASES)
def test_a_measure_is_chosen_where_it_is_best_and_no_input_overflows(measure, tmp_path):
    inputs, bits, how, budget = CASES[measure]
    path, data = net(tmp_path, inputs(np.random.default_rng(1)), **how)
    output, prices = tmp_path / "narrow.onnx", tmp_path / "products.toml"
    prices.write_text(PRODUCTS)
    result = tracer.narrow(
        path, str(bits), data, metric="noise", budget=budget, output=output, in_process=True,
        energy=str(prices),
    )  # fmt: skip
    (node,) = result.nodes
    assert node.measure == measure
    assert node.guaranteed_before > bits >= node.guaranteed and not node.overflows
    stored = Stored(onnx.load(output))
    assert len(stored.layers) == node.parts
    products = sum(stored.rows(name).size for name in stored.layers)  # with those of added sums
    places, terms = (9, 8 * 9) if "conv" in how else (1, DEPTH)
    assert (node.energy_before, node.energy) == (6 * terms * places, products * places)
    for name in stored.layers:
        top, bottom = stored.worst(name)
        assert -(1 << bits - 1) <= bottom and top < 1 << bits - 1
        assert not overflows_on_worst_inputs(stored, name, bits)
    x = np.load(data)["x"]
    (wide,), (narrow,) = (ort.InferenceSession(p).run(None, {"x": x}) for p in (path, output))
    assert 10 * np.log10((wide**2).sum() / ((wide - narrow) ** 2).sum()) > 15


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op_type", ["Gemm", "MatMul"])
def test_of_many_outputs_a_few_choose_the_measure_and_all_fit(tmp_path, monkeypatch, op_type):
    random = np.random.default_rng(2)
    net = Builder("net", x=("N", 32))
    weights = random.normal(0, 0.3, (300, 32)).astype(np.float32)
    if op_type == "Gemm":
        net.node("Gemm", "y", "x", net.constant("w", weights), net.weight("b", 300), transB=1)
    else:
        net.node("MatMul", "y", "x", net.constant("w", weights.T.copy()))
    onnx.save(net.model("y"), tmp_path / "float.onnx")
    path, data, output = (tmp_path / name for name in ("net.onnx", "data.npz", "narrow.onnx"))
    np.savez(data, x=random.uniform(-1, 3, (400, 32)).astype(np.float32))
    tracer.quantize(tmp_path / "float.onnx", data, output=path, metric="noise")
    options = {"metric": "noise", "budget": 100, "in_process": True}
    (few,) = tracer.narrow(path, "12", data, output=output, **options).nodes
    stored = Stored(onnx.load(output))
    (name,) = stored.layers
    assert stored.rows(name).shape == (300, 32)
    top, bottom = stored.worst(name)
    assert bottom >= -(1 << 11) and top < 1 << 11
    monkeypatch.setattr(samples, "_MANY", 300)
    (every,) = tracer.narrow(path, "12", data, **options).nodes
    assert (few.measure, few.activation_bits) == (every.measure, every.activation_bits)
    assert few.sqnr_db == pytest.approx(every.sqnr_db, abs=0.5)


def test_worst_inputs_do_overflow_one_bit_less(tmp_path):
    path, data = net(tmp_path, uniform(np.random.default_rng(1)))
    output = tmp_path / "narrow.onnx"
    tracer.narrow(path, "16", data, metric="noise", output=output, in_process=True, budget=100)
    stored = Stored(onnx.load(output))
    (name,) = stored.layers
    assert overflows_on_worst_inputs(stored, name, 15)


@pytest.mark.nightly
def test_tiles_fit_each_on_its_own_and_keep_more(tmp_path):
    path, data = net(tmp_path, uniform(np.random.default_rng(1)))
    output, options = tmp_path / "narrow.onnx", {"metric": "noise", "in_process": True}
    whole = tracer.narrow(path, "12", data, budget=100, **options)
    tiled = tracer.narrow(path, "12", data, budget=100, tile=16, output=output, **options)
    stored = Stored(onnx.load(output))
    (name,) = stored.layers
    top, bottom = stored.worst(name, tile=16)
    assert bottom >= -(1 << 11) and top < 1 << 11
    assert stored.worst(name)[0] >= 1 << 11  # the sum of all tiles needs more
    assert tiled.nodes[0].guaranteed <= 12
    assert tiled.nodes[0].sqnr_db > whole.nodes[0].sqnr_db + 2
    model = loading.load(output)
    emulation = AccumulatorEmulation(model, as_policy("two-level(12,16,32)"))
    interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    ours = interpreter.run(None, dict(np.load(data)))[0]
    (sums,) = emulation.accumulations().values()
    assert not sums.tally.clipped_widths.any()
    theirs = ort.InferenceSession(output).run(None, dict(np.load(data)))[0]
    assert np.array_equal(ours, theirs)


def test_these_data_leave_more_room_than_any_input(tmp_path):
    path, data = net(tmp_path, np.random.default_rng(1).normal(0, 1, (300, DEPTH)))
    options = {"metric": "noise", "in_process": True, "budget": 100}
    any_input = tracer.narrow(path, "14", data, **options)
    these = tracer.narrow(path, "14", data, guarantee="this-data", **options)
    (node,) = these.nodes
    assert node.sqnr_db > any_input.nodes[0].sqnr_db + 3
    assert node.guaranteed > 14 >= node.observed and not node.overflows


@pytest.mark.nightly
def test_these_data_are_never_served_worse_than_by_saturation(tmp_path):
    inputs = spiky(np.random.default_rng(1))
    path, data = net(tmp_path, inputs)
    np.savez(tmp_path / "mild.npz", x=(0.2 * inputs).astype(np.float32))
    options = {"metric": "noise", "in_process": True, "budget": 0, "test": tmp_path / "mild.npz"}
    result = tracer.narrow(path, "12:16:1", data, guarantee="this-data", **options)
    assert all(each.narrowed <= each.saturated for each in result.curve)
    kept = tracer.narrow(path, "15", data, guarantee="this-data", **options)
    assert kept.scores.narrowed == kept.scores.saturated == 0
    assert not kept.nodes[0].measure
    assert any("the model stays as it is: at 15 bits" in note for note in kept.notes)
    narrowed = tracer.narrow(path, "15", data, **options)  # any input must fit, whatever it costs
    assert narrowed.nodes[0].measure and narrowed.nodes[0].fits
    assert narrowed.scores.narrowed > narrowed.scores.saturated
    assert any("the model before scores better if its sums saturate" in n for n in narrowed.notes)


def test_overflows_of_other_data_are_reported(tmp_path):
    inputs = uniform(np.random.default_rng(1))
    path, data = net(tmp_path, 0.2 * inputs)
    np.savez(tmp_path / "large.npz", x=inputs.astype(np.float32))
    tracer.quantize(path, tmp_path / "large.npz", output=tmp_path / "q.onnx", metric="noise")
    result = tracer.narrow(
        tmp_path / "q.onnx", "14", data, test=tmp_path / "large.npz", guarantee="this-data",
        metric="noise", in_process=True, budget=100,
    )  # fmt: skip
    (node,) = result.nodes
    assert node.overflows > 0 and node.observed > 14
    assert "overflowed on these data, and saturated" in render(result, "md").decode()
