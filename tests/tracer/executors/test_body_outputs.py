"""Tensors inside bodies, as onnxruntime returns them where the body hands them out."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.graphs import parse
from tracer.executors.onnxruntime import all_outputs
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.model import bodies

LOOP = """
<ir_version: 10, opset_import: ["": 21]>
g (float[4] x, int64 trips) => (float[4] y)
<float[4] w = {1, 2, 3, 4}, bool always = {1}> {
  c = Cos (x)
  y = Loop (trips, always, c) <
    body = step (int64 i, bool go, float[4] s) => (bool on, float[4] n)
    <float[4] v = {5, 6, 7, 8}> {
      on = Identity (go)
      a = Mul (s, w)
      zero = Constant <value = int64 {0}> ()
      first = Equal (i, zero)
      b = If (first) <
        then_branch = yes () => (float[4] p) { q = Add (a, c)  p = Mul (q, v) },
        else_branch = no () => (float[4] r) { r = Neg (a) }
      >
      n = Tanh (b)
    }
  >
}
"""

SCAN = """
<ir_version: 10, opset_import: ["": 21]>
g (float[2,3] x, float[3,2] z) => (float[2] y, float[2,3] all) <float[2] s0 = {1, 2}> {
  y, all = Scan (s0, x, z) <
    num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
    scan_output_axes = [1],
    body = step (float[2] s, float[2] e, float[2] f) => (float[2] t, float[2] u) {
      m = Mul (s, e)
      k = Sub (m, f)
      t = Identity (k)
      u = Sin (k)
    }
  >
}
"""

X = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)
CASES = {
    "loop": (LOOP, {"x": X.ravel()[:4], "trips": np.array(3)}, {"y.body", "b.then_branch"}),
    "scan": (SCAN, {"x": X, "z": X.T * 3}, {"y.body"}),
}


def first_runs(text, feeds):
    proto = parse(text)
    for node in (*proto.graph.node, *(n for o in proto.graph.node for _, g in bodies(o)
                                      for n in g.node)):  # fmt: skip
        node.name = node.output[0]
    model = loading.from_proto(proto)
    values = {**feeds, **all_outputs.tensors(model, feeds, OrtSettings(threads=1))}
    return proto, dict(all_outputs.first_runs(model, model, values, OrtSettings(threads=1)))


def handed_out(proto, owner, body, name, feeds):
    """Returns a tensor of a body of the main graph as a further output, the first time it ran."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    node = next(node for node in copy.graph.node if node.name == owner)
    graph = next(graph for attribute, graph in bodies(node) if attribute == body)
    graph.output.add(name=name)
    node.output.append("out")
    if node.op_type == "Scan":
        axes = next(each for each in node.attribute if each.name == "scan_output_axes")
        axes.ints.append(0)
    copy.graph.output.add(name="out")
    session = ort.InferenceSession(copy.SerializeToString())
    return session.run(["out"], feeds)[0][0]


@pytest.mark.parametrize("name", CASES)
def test_the_tensors_of_a_body_are_those_of_its_first_run(name):
    text, feeds, paths = CASES[name]
    proto, found = first_runs(text, feeds)
    assert found.keys() == paths
    (owner,) = [node for node in proto.graph.node if bodies(node)]
    ((attribute, body),) = bodies(owner)
    names = [name for node in body.node for name in node.output]
    assert {*names} <= found[f"{owner.name}.{attribute}"].keys()
    for tensor in set(names) - {value.name for value in body.output}:
        expected = handed_out(proto, owner.name, attribute, tensor, feeds)
        np.testing.assert_allclose(found[f"{owner.name}.{attribute}"][tensor], expected, rtol=1e-6)


def test_a_body_inside_a_body_reads_what_is_around_both():
    _, feeds, _ = CASES["loop"]
    _, found = first_runs(LOOP, feeds)
    inner, c = found["b.then_branch"], np.cos(feeds["x"])
    np.testing.assert_allclose(inner["q"], c * [1, 2, 3, 4] + c, rtol=1e-6)
    np.testing.assert_allclose(inner["p"], inner["q"] * [5, 6, 7, 8], rtol=1e-6)
    assert {"a", "c", "q", "p"} <= inner.keys()


def test_a_loop_without_trips_has_no_tensors():
    _, feeds, _ = CASES["loop"]
    _, found = first_runs(LOOP, {**feeds, "trips": np.array(0)})
    assert found == {}
