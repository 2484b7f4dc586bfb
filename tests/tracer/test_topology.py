"""Who reads whom: against a walk over the protocol buffers that resolves names by itself."""

from pathlib import Path

import onnx
import pytest

import tracer
from tests.graphs import BRANCHES, parse, residual
from tracer.api.results import load_result
from tracer.graph import loading
from tracer.records.model_info import Topology
from tracer.whatif.options import WhatIfOptions

MODELS = Path(__file__).parents[2] / "models"
SHIPPED = sorted(MODELS.rglob("*.onnx"))

CAPTURING = """
<ir_version: 8, opset_import: ["": 16]>
g (float[4] x, bool flag) => (float[4] y, float[4] x2) {
  a = Relu (x)
  x2 = Neg (a)
  y = If (flag) <
    then_branch = outer () => (float[4] p) {
      t = Add (a, a)
      p = If (flag) <
        then_branch = inner () => (float[4] q) { q = Add (t, a) },
        else_branch = other (float[4] a) => (float[4] r) { r = Tanh (a) }
      >
    },
    else_branch = zero () => (float[4] b) { b = Add (x, x2) }
  >
}
"""


def walked(graph, outer, owner, found):
    """Appends (reads, owner) of each node; `outer` maps what a graph sees to its makers."""
    seen = dict(outer)
    seen |= {each.name: None for each in [*graph.input, *graph.initializer]}
    for node in graph.node:
        position = len(found)
        reads = {seen[name] for name in node.input if name} - {None}
        found.append((tuple(sorted(reads)), owner))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                walked(attribute.g, seen, position, found)
        seen |= dict.fromkeys(node.output, position)
    return found


def expected(proto):
    return walked(proto.graph, {}, None, [])


def connections(topology):
    return list(zip(topology.producers, topology.owners, strict=True))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_node_of_a_shipped_model_reads_what_its_graph_says(path):
    model = loading.open_model(path)
    topology = Topology.of(model)
    assert connections(topology) == expected(model.proto)
    assert topology.modules == tuple(node.module for node in model.nodes)


@pytest.mark.parametrize("text", [BRANCHES, CAPTURING], ids=["loops", "captured"])
def test_bodies_read_what_surrounds_them_and_have_their_owners(text):
    proto = onnx.parser.parse_model(text)
    topology = Topology.of(loading.from_proto(proto))
    assert connections(topology) == expected(proto)
    assert len(set(topology.owners)) > 1


def test_inputs_have_readers_and_outputs_their_maker_wherever_it_is():
    topology = Topology.of(loading.from_proto(parse(CAPTURING)))
    positions = {key: index for index, key in enumerate(topology.nodes)}
    branch = positions["If_2.else_branch/Add_0"]
    assert topology.inputs == {"x": (0, branch), "flag": (2, 4)}
    assert topology.outputs == {"y": 2, "x2": 1}


def test_an_input_that_is_an_output_has_no_maker():
    text = '<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] x) {}'
    topology = Topology.of(loading.from_proto(onnx.parser.parse_model(text)))
    assert (topology.nodes, topology.inputs, topology.outputs) == ((), {"x": ()}, {"x": None})


def test_results_have_the_topology_and_files_keep_it(tmp_path):
    wanted = Topology.of(loading.from_proto(residual()))
    trace = tracer.profile(residual(), runs=2)
    assert trace.model.topology == wanted
    assert tracer.count(residual()).model.topology == wanted
    assert tracer.fusions(residual()).model.topology == wanted
    assert tracer.load(trace.save(tmp_path / "r.trace")).model.topology == wanted
    assert tracer.load("tests/fixtures/traces/profile.trace").model.topology is None


def test_a_what_if_keeps_the_topology(tmp_path):
    model = MODELS / "lenet" / "lenet.int8.onnx"
    options = WhatIfOptions(limit=8, search=False)
    tracer.what_if(model, [20], "digits", options, trace=tmp_path / "w.trace")
    kept = load_result(tmp_path / "w.trace").model.topology
    assert kept == Topology.of(loading.open_model(model))
