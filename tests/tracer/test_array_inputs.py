"""Inputs as arrays by name, as onnxruntime's sessions take them."""

from importlib.util import find_spec

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer
from models import families
from tests.graphs import parse
from tracer.errors import InputError, UsageError

LENET = families.FOLDER / "lenet" / "lenet.onnx"
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


@pytest.mark.parametrize("is_here", [True, False])
def test_data_are_arrays_too(is_here, tmp_path):
    """The same model comes of the same numbers in a file."""
    samples = np.random.default_rng(0).random((24, 3, 32, 32), np.float32)
    np.savez(tmp_path / "data.npz", x=samples)
    few = {"limit": 8, "test_limit": 8, "in_process": is_here}
    own, stored = (
        tracer.quantize(LENET, each, **few) for each in ({"x": samples}, tmp_path / "data.npz")
    )
    assert own.proto == stored.proto
    assert own.settings["calibrate"] == own.settings["test"] == "arrays of the call"
    narrowed = tracer.narrow(own.proto, 16, {"x": samples}, **few)
    assert narrowed.proto == tracer.narrow(own.proto, 16, tmp_path / "data.npz", **few).proto
    options = tracer.WhatIfOptions(limit=8, search=False)
    swept = tracer.what_if(LENET, "15:16", {"x": samples}, options=options, in_process=is_here)
    assert swept.settings["data"] == "arrays of the call"
    with pytest.raises(InputError, match=r"^calibrate has no 'x'"):
        tracer.quantize(LENET, calibrate={"y": samples}, in_process=is_here)
    with pytest.raises(UsageError, match=r"^data is a mapping, and 'x' in it"):
        tracer.narrow(LENET, 16, data={"x": [object()]}, in_process=is_here)


@pytest.mark.parametrize("framework", ["torch", "chainer"])
def test_a_model_of_a_framework_takes_its_inputs_by_keyword(framework):
    if not find_spec(framework):
        pytest.skip("it is not installed")
    from tests.tracer.executors import keyword_nets

    model, received = keyword_nets.made(framework)
    given = {"b": np.full((1, 3), 2, np.float32), "scale": np.ones((1,), np.float32)}
    given = {"x": np.zeros((4, 3), np.float32), **given}  # without `a`, which stands between them
    trace = tracer.profile_framework(model, inputs=given, runs=2, warmup=0, in_process=True)
    assert trace.runs[0].inputs == {
        "x": "float32[4,3]", "b": "float32[1,3]", "scale": "float32[1]"
    }  # fmt: skip
    assert trace.runs[0].batch == 4
    assert received and all(each == (0, None, 6, 1) for each in received)
    with pytest.raises(InputError, match=r"takes .*, and the inputs are x=.*, y=float32\[1,3\]"):
        tracer.profile_framework(model, inputs={**given, "y": given["b"]}, runs=2, warmup=0)
    with pytest.raises(UsageError, match=r"^inputs is \{'x': 3\}\. Give a list, .*; or a mapping"):
        tracer.profile_framework(model, inputs={"x": 3})
