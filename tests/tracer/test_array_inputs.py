"""Inputs as arrays by name, as onnxruntime's sessions take them."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer
from tests.graphs import parse
from tracer.errors import InputError, UsageError

NAMES = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[n, 4] file, float[n, 4] in_b) => (float[n, 4] y) { y = Sub (file, in_b) }"""


@pytest.fixture
def model(tmp_path):
    proto = parse(NAMES)
    for value, name in zip(proto.graph.input, ("file", "a/b"), strict=True):
        value.name = name
    proto.graph.node[0].input[:] = ("file", "a/b")
    onnx.save(proto, tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_arrays_are_what_the_model_reads(model):
    random, found = np.random.default_rng(0), []
    arrays = {name: random.normal(size=(3, 4)).astype(np.float32) for name in ("file", "a/b")}
    trace = tracer.interpret(
        model, inputs=arrays, receive=lambda _, outputs: found.append(outputs[0]), in_process=True
    )
    (expected,) = ort.InferenceSession(model).run(None, arrays)
    np.testing.assert_array_equal(found[0], expected)
    assert trace.runs[0].batch == 3
    assert "inputs are arrays of the call" in trace.notes


def test_arrays_reach_the_child_process(model):
    arrays = {name: np.zeros((5, 4), np.float32) for name in ("file", "a/b")}
    assert set(tracer.count(model, inputs=arrays).nodes["batch"]) == {5}


def test_what_is_no_array_or_no_input_is_refused(model):
    with pytest.raises(UsageError, match="'file' in it is no array of numbers or text"):
        tracer.count(model, inputs={"file": np.array([object()])})
    with pytest.raises(InputError, match="a/b missing"):
        tracer.count(model, inputs={"file": np.zeros((3, 4), np.float32)})
