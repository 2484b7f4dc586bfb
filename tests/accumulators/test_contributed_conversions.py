"""Quantisers of onnxruntime's own domain, against the same graph with those of ONNX."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer
from tests.graphs import quantised
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import parse_policy
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

BITS = {"QUInt8": 8, "QInt16": 16}


@pytest.fixture(scope="module", params=[*BITS])
def graphs(request, tmp_path_factory):
    """The bits of activations; the graph that onnxruntime wrote, and the same one in opset 21."""
    folder = tmp_path_factory.mktemp("quantised")
    path = quantised(folder, "QDQ", request.param, {"UseQDQContribOps": True})
    own, standard = onnx.load(path), onnx.load(path)
    assert "com.microsoft" in {node.domain for node in own.graph.node}
    for node in standard.graph.node:
        node.domain = ""
    standard.opset_import[0].version, standard.ir_version = 21, 10
    return BITS[request.param], own, standard


def test_products_have_the_bits_and_the_energy_of_their_integers(graphs):
    bits, own, standard = graphs
    tables = [tracer.count(each, energy="lab").nodes.set_index("node") for each in (own, standard)]
    products = [table[table["macs"] > 0] for table in tables]
    assert len(products[0]) == 3
    assert (products[0]["bops"] == products[0]["macs"] * bits * 8).all()
    for column in ("bops", "energy", "param_bytes"):
        assert products[0][column].to_list() == products[1][column].to_list()


@pytest.mark.parametrize("width", [14, 40])
def test_they_add_the_same_integers(graphs, width):
    _, own, standard = graphs
    x = np.random.default_rng(0).normal(0, 0.5, (2, 3, 16, 16)).astype(np.float32)
    found = []
    for proto in (own, standard):
        model = loading.from_proto(proto)
        emulation = AccumulatorEmulation(model, parse_policy(str(width)))
        interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
        (y,) = interpreter.run(None, {"x": x})
        sums = emulation.accumulations()
        tallies = {key: (each.tally, each.guaranteed) for key, each in sums.items()}
        found.append((y.tobytes(), tallies, [step.op_type for step in interpreter.steps]))
    assert found[0] == found[1]
    assert len(found[0][1]) >= 3
    if width > 32:  # no sum overflows: what onnxruntime computes, but for the rounding of a step
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(own.SerializeToString(), options)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, expected, atol=np.abs(expected).max() / 100)
