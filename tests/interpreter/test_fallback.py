"""Operators that the interpreter lacks: all are named before the run, or onnxruntime computes them.

The oracle is onnxruntime on the whole model, or the formula of the operator in numpy.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.interpreter.models import fused, normal, onnxruntime, parsed
from tracer import interpret
from tracer.errors import InputError, ModelError
from tracer.executors.registry import find_fallback
from tracer.graph.loading import open_model
from tracer.interpreter.interpreter import Interpreter

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "mine" : 3]>'
GATES = (
    HEADER + "graph (float[N,4] a) => (float[N,4] y) {"
    " r = Relu (a) [far] d = com.microsoft.ScaledSiLU <alpha = 2.0> (r)"
    " [near] e = com.microsoft.ScaledSiLU <alpha = 0.5> (a)"
    " y = Add (d, e) }"
)
LACKING = (
    HEADER + "graph (float[2,3] x) => (float[2,2] z) {"
    " [one] a = mine.Whirl (x) [two] b = mine.Whirl (a) [three] c = mine.Twirl (b)"
    " [four] z = com.microsoft.ScaledSiLU (c) }"
)


def formula(a):
    """x sigmoid(x) of 2 max(a, 0) and of a / 2."""
    return sum(x / (1 + np.exp(-x)) for x in (2 * np.maximum(a, 0), a / 2))


def ort():
    return find_fallback("ort")


def test_all_operators_without_implementation_are_named_before_the_run():
    with pytest.raises(ModelError) as caught:
        Interpreter(parsed(LACKING))
    assert "mine.Whirl (2 nodes, the first is 'one')" in caught.value.what
    assert "mine.Twirl (node 'three')" in caught.value.what
    assert "com.microsoft.ScaledSiLU (node 'four')" in caught.value.what
    assert "--fallback ort" in caught.value.hint


def test_what_onnxruntime_lacks_too_is_named_with_the_reason():
    with pytest.raises(ModelError, match=r"'one'.*no kernel for it either.*'three'") as caught:
        Interpreter(parsed(LACKING), fallback=ort())
    assert "ScaledSiLU" not in caught.value.what


def test_a_node_with_a_body_is_refused():
    body = helper.make_graph(
        [helper.make_node("Identity", ["i"], ["o"])], "body",
        [helper.make_tensor_value_info("i", 1, [1])], [helper.make_tensor_value_info("o", 1, [1])],
    )  # fmt: skip
    model = fused("BeamSearch", {"ids": np.zeros((1, 2), np.int32)}, decoder=body)
    with pytest.raises(ModelError, match=r"BeamSearch.*its body cannot be handed"):
        Interpreter(model, fallback=ort())


@pytest.mark.parametrize("rows", [1, 3])
def test_nodes_are_computed_by_onnxruntime(rows):
    model = parsed(GATES)
    interpreter = Interpreter(model, fallback=ort())
    for scale in (1, 2):  # the same session again, and other values
        fed = {"a": normal(rows, 4) * np.float32(scale)}
        (found,), (expected,) = interpreter.run(None, fed), onnxruntime(model, fed)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    (note,) = interpreter.notes
    assert "2 nodes" in note and "com.microsoft.ScaledSiLU: 'far', 'near'" in note


def test_another_size_gets_another_session():
    interpreter = Interpreter(parsed(GATES), fallback=ort())
    for rows in (2, 7, 2):
        a = normal(rows, 4)
        (found,) = interpreter.run(None, {"a": a})
        np.testing.assert_allclose(found, formula(a), rtol=1e-5)


def by_onnxruntime(proto, feeds, stored=()):
    """The outputs of the only node, whatever the interpreter has."""
    model = open_model(proto)
    (node,) = model.nodes
    return ort().kernel(node, model, stored)([feeds.get(name) for name in node.inputs], {})


def test_weights_and_omitted_inputs():
    inputs = {
        "x": normal(1, 2, 5, 5), "w": normal(2, 3, 3, 3, seed=1),
        "pads": np.ones(4, np.int64), "bias": None,
    }  # fmt: skip
    model = fused("ConvTransposeWithDynamicPads", inputs, stored=("w", "pads"))
    (found,) = by_onnxruntime(model, inputs, ("w", "pads"))
    (expected,) = onnxruntime(model, {"x": inputs["x"]})
    np.testing.assert_array_equal(found, expected)


def test_texts():
    texts = np.array(["to be", "or not to be"], object)
    attributes = {"separators": [" "], "mark": 0, "pad_value": "#", "mincharnum": 1}
    (found,) = by_onnxruntime(fused("Tokenizer", {"x": texts}, **attributes), {"x": texts})
    assert found.tolist() == [["to", "be", "#", "#"], ["or", "not", "to", "be"]]


def test_a_node_that_onnxruntime_refuses_is_named():
    feeds = {"x": normal(2, 3), "scale": normal(2)}  # which is one number
    model = fused("ScaledSiLU", feeds)
    with pytest.raises((InputError, ModelError), match="node 'node'"):
        Interpreter(model, fallback=ort()).run(None, feeds)


def test_interpret_notes_what_onnxruntime_computed(tmp_path):
    onnx.save(parsed(GATES), tmp_path / "gates.onnx")
    trace = interpret(tmp_path / "gates.onnx", fallback="ort", against="ort", runs=1)
    assert any("com.microsoft.ScaledSiLU: 'far', 'near'" in note for note in trace.runs[0].notes)
    assert all(each.difference is not None for each in trace.runs[0].values)
