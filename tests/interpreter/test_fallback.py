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
from tracer.interpreter.interpreter import Interpreter

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "mine" : 3]>'
DISTANCES = (
    HEADER + "graph (float[N,4] a, float[5,4] b) => (float[N,5] y) <float[1] half = {0.5}> {"
    ' r = Relu (a) [far] d = com.microsoft.CDist <metric = "euclidean"> (r, b)'
    ' [near] e = com.microsoft.CDist <metric = "sqeuclidean"> (a, b)'
    " s = Add (d, e) y = Mul (s, half) }"
)
LACKING = (
    HEADER + "graph (float[2,3] x) => (float[2,2] z) {"
    " [one] a = mine.Whirl (x) [two] b = mine.Whirl (a) [three] c = mine.Twirl (b)"
    " [four] z = com.microsoft.CDist (c, c) }"
)


def ort():
    return find_fallback("ort")


def test_all_operators_without_implementation_are_named_before_the_run():
    with pytest.raises(ModelError) as caught:
        Interpreter(parsed(LACKING))
    assert "mine.Whirl (2 nodes, the first is 'one')" in caught.value.what
    assert "mine.Twirl (node 'three')" in caught.value.what
    assert "com.microsoft.CDist (node 'four')" in caught.value.what
    assert "--fallback ort" in caught.value.hint


def test_what_onnxruntime_lacks_too_is_named_with_the_reason():
    with pytest.raises(ModelError, match=r"'one'.*no kernel for it either.*'three'") as caught:
        Interpreter(parsed(LACKING), fallback=ort())
    assert "CDist" not in caught.value.what


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
    model, feeds = parsed(DISTANCES), {"a": normal(rows, 4), "b": normal(5, 4, seed=1)}
    interpreter = Interpreter(model, fallback=ort())
    for scale in (1, 2):  # the same session again, and other values
        fed = {name: value * np.float32(scale) for name, value in feeds.items()}
        (found,), (expected,) = interpreter.run(None, fed), onnxruntime(model, fed)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    (note,) = interpreter.notes
    assert "2 nodes" in note and "com.microsoft.CDist: 'far', 'near'" in note


def test_another_size_gets_another_session():
    interpreter = Interpreter(parsed(DISTANCES), fallback=ort())
    for rows in (2, 7, 2):
        a, b = normal(rows, 4), normal(5, 4, seed=1)
        (found,) = interpreter.run(None, {"a": a, "b": b})
        square = ((a[:, None] - b) ** 2).sum(-1)
        root = np.sqrt(((np.maximum(a, 0)[:, None] - b) ** 2).sum(-1))
        np.testing.assert_allclose(found, (square + root) / 2, rtol=1e-5)


def test_weights_and_omitted_inputs():
    inputs = {
        "x": normal(1, 2, 5, 5), "w": normal(2, 3, 3, 3, seed=1),
        "pads": np.ones(4, np.int64), "bias": None,
    }  # fmt: skip
    model = fused("ConvTransposeWithDynamicPads", inputs, stored=("w", "pads"))
    (found,) = Interpreter(model, fallback=ort()).run(None, {"x": inputs["x"]})
    (expected,) = onnxruntime(model, {"x": inputs["x"]})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_texts():
    texts = np.array(["to be", "or not to be"], object)
    attributes = {"separators": [" "], "mark": 0, "pad_value": "#", "mincharnum": 1}
    model = fused("Tokenizer", {"x": texts}, **attributes)
    (found,) = Interpreter(model, fallback=ort()).run(None, {"x": texts})
    np.testing.assert_array_equal(found, onnxruntime(model, {"x": texts})[0])
    assert found.tolist() == [["to", "be", "#", "#"], ["or", "not", "to", "be"]]


def test_a_node_that_onnxruntime_refuses_is_named():
    model = fused("CDist", {"a": normal(2, 3), "b": normal(2, 4)}, metric="euclidean")
    with pytest.raises((InputError, ModelError), match="node 'node'"):
        Interpreter(model, fallback=ort()).run(None, {"a": normal(2, 3), "b": normal(2, 4)})


def test_interpret_notes_what_onnxruntime_computed(tmp_path):
    onnx.save(parsed(DISTANCES), tmp_path / "distances.onnx")
    trace = interpret(tmp_path / "distances.onnx", fallback="ort", against="ort", runs=1)
    assert any("com.microsoft.CDist: 'far', 'near'" in note for note in trace.runs[0].notes)
    assert all(each.difference is not None for each in trace.runs[0].values)
