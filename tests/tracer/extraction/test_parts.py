"""Nodes and modules that are cut out, with their inputs and outputs in a run of the model."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx.utils
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import tracer
from tests.graphs import BRANCHES, residual
from tracer.errors import InputError, UsageError

FUNCTION = """
<ir_version: 8, opset_import: ["": 17, "own": 1]>
g (float[2,3] x) => (float[2,3] y) {
  a = Neg (x)
  b = own.shifted (a)
  y = Exp (b)
}
<opset_import: ["": 17], domain: "own">
shifted (u) => (v) {
  one = Constant <value = float {1}> ()
  s = Add (u, one)
  v = Tanh (s)
}
"""


def values(folder, kind):
    """The arrays of a test_data_set, in order."""
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(f.read_bytes())) for f in files]


def check(folder):
    """A part is a valid model that computes its outputs in onnx's and in onnxruntime's hands."""
    path = folder / "model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    proto, data = onnx.load(path), folder / "test_data_set_0"
    names = [value.name for value in proto.graph.input]
    feeds = dict(zip(names, values(data, "input"), strict=True))
    expected = values(data, "output")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for outputs in (ReferenceEvaluator(proto).run(None, feeds), session.run(None, feeds)):
        for ours, theirs in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
            assert ours.dtype == theirs.dtype
    return proto


@pytest.mark.parametrize(
    ("model", "node", "operators"),
    [
        ("lenet/lenet.onnx", "node_Conv_23", ["Conv"]),
        ("transformer/transformer.onnx", "node_add_103", ["Add"]),
    ],
)
def test_a_node_has_the_values_of_a_run(model, node, operators, tmp_path):
    result = tracer.extract(f"models/{model}", [tmp_path / "part"], node=[node])
    assert result.nodes == len(operators)
    proto = check(tmp_path / "part")
    assert [each.op_type for each in proto.graph.node] == operators


def test_it_is_the_part_that_onnx_cuts_out(tmp_path):
    model = tmp_path / "m.onnx"
    onnx.save(residual(), model)
    tracer.extract(model, [tmp_path / "part"], node=["c2", "sum", "r2"])
    onnx.utils.extract_model(model, tmp_path / "theirs.onnx", ["r1"], ["r2"])
    ours, theirs = check(tmp_path / "part"), onnx.load(tmp_path / "theirs.onnx")
    assert list(ours.graph.node) == list(theirs.graph.node)
    assert [value.name for value in ours.graph.output] == ["r2"]
    assert [value.name for value in ours.graph.input] == ["r1"]
    assert {w.name for w in ours.graph.initializer} == {w.name for w in theirs.graph.initializer}


def test_a_module_is_cut_out_of_a_network(tmp_path):
    result = tracer.extract(
        "models/resnet_cifar/resnet20.onnx", [tmp_path / "part"], module=["stage1.2"]
    )
    proto = check(tmp_path / "part")
    assert result.nodes == len(proto.graph.node) > 4
    assert all("stage1.2" in str(node.metadata_props) for node in proto.graph.node)


@pytest.fixture
def branches(tmp_path):
    path = tmp_path / "branches.onnx"
    onnx.save(onnx.parser.parse_model(BRANCHES), path)
    inputs = tmp_path / "inputs.npz"
    x = np.array([0.5, -1, 2, 3], np.float32)
    np.savez(inputs, x=x, flag=np.array(True), trips=np.array(2, np.int64))
    return path, inputs


def test_a_body_brings_what_it_reads_around_it(branches, tmp_path):
    model, inputs = branches
    tracer.extract(model, [tmp_path / "part"], node=["y"], inputs=inputs)
    proto = check(tmp_path / "part")
    assert [value.name for value in proto.graph.input] == ["flag", "x"]


def test_a_node_of_a_body_has_the_values_of_its_first_run(branches, tmp_path):
    model, inputs = branches
    tracer.extract(model, [tmp_path / "part"], node=["d"], inputs=inputs)
    check(tmp_path / "part")
    (s,) = values(tmp_path / "part/test_data_set_0", "input")
    np.testing.assert_allclose(s, np.exp(np.tanh([0.5, -1, 2, 3])), rtol=1e-5)


def test_nodes_of_functions_are_cut_out_too(tmp_path):
    model = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(FUNCTION), model)
    tracer.extract(model, [tmp_path / "part.onnx"], node=["b"])
    proto = onnx.load(tmp_path / "part.onnx")
    assert [node.op_type for node in proto.graph.node] == ["Tanh"]
    assert len(values(tmp_path / "test_data_set_0", "input")) == 1


def test_weights_in_other_files_come_along_alone(tmp_path):
    proto = residual()
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    tracer.extract(tmp_path / "m.onnx", [tmp_path / "part"], node=["c2"])
    part = check(tmp_path / "part")
    assert {weight.name for weight in part.graph.initializer} == {"w2"}


def test_weights_of_a_quantised_layer_stay_weights(tmp_path):
    """A convolution of floats reads what DequantizeLinear makes of stored integers."""
    proto = onnx.load("models/lenet/lenet.int8.onnx")
    conv = next(node for node in proto.graph.node if node.op_type == "Conv")
    tracer.extract("models/lenet/lenet.int8.onnx", [tmp_path / "part"], node=[conv.name])
    part = check(tmp_path / "part")
    assert {weight.name for weight in part.graph.initializer} == set(conv.input[1:])


NO_TENSORS = """
<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 3]>
g (float[2,2] x) => (seq(map(int64, float)) named, optional(float[2,2]) some, float[2,2] y) {
  z = Neg (x)
  named = ai.onnx.ml.ZipMap <classlabels_int64s = [3, 4]> (z)
  some = Optional (z)
  empty = SequenceEmpty ()
  one = SequenceInsert (empty, z)
  first = Constant <value_int = 0> ()
  y = SequenceAt (one, first)
}
"""


@pytest.mark.parametrize("node", ["named", "some", "empty", "one"])
def test_outputs_that_are_no_tensors_have_their_types(node, tmp_path):
    onnx.save(onnx.parser.parse_model(NO_TENSORS), tmp_path / "m.onnx")
    tracer.extract(tmp_path / "m.onnx", [tmp_path / "part"], node=[node])
    path = tmp_path / "part/model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = np.ones((2, 2), np.float32)
    given = {"z": x, "empty": []}
    (output,) = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})
    expected = {"named": [{3: 1, 4: 1}] * 2, "some": x, "empty": [], "one": [x]}
    np.testing.assert_equal(output, expected[node])


def test_a_sparse_weight_comes_along(tmp_path):
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[3,4] x) => (float[3,2] y) { z = Neg (x) y = MatMul (z, w) }""")
    places = numpy_helper.from_array(np.array([1, 6]), "places")
    weight = numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    sparse = onnx.helper.make_sparse_tensor(weight, places, [4, 2])
    proto.graph.sparse_initializer.append(sparse)
    onnx.save(proto, tmp_path / "m.onnx")
    tracer.extract(tmp_path / "m.onnx", [tmp_path / "part"], node=["y"])
    assert {weight.name for weight in check(tmp_path / "part").graph.initializer} == {"w"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, UsageError, "a part or a fault is extracted"),
        ({"node": ["node_Conv_2"]}, UsageError, "no node 'node_Conv_2'. Did you mean"),
        ({"module": ["conv9"]}, UsageError, "no module 'conv9'"),
        (
            {"node": ["node_Conv_22"], "fault": "wrong"},
            UsageError,
            "a part or a fault is extracted",
        ),
        ({"fault": "odd"}, UsageError, "not the name of FILE.py"),
    ],
)
def test_what_is_not_there_is_refused(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        tracer.extract("models/lenet/lenet.onnx", [tmp_path / "part"], **options)
    assert not list(tmp_path.iterdir())


def test_a_part_that_exists_is_not_overwritten(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/model.onnx").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        tracer.extract("models/lenet/lenet.onnx", [tmp_path / "part"], node=["node_Conv_22"])
    assert Path(tmp_path / "part/model.onnx").read_text() == "mine"


def test_values_of_another_part_are_kept_unless_they_are_to_be_replaced(tmp_path):
    data = tmp_path / "test_data_set_0"
    data.mkdir()
    for name in ("input_0.pb", "output_7.pb"):
        (data / name).write_bytes(b"precious")
    for output in (tmp_path / "part.onnx", tmp_path):
        with pytest.raises(InputError, match="test_data_set_0: the folder has files"):
            tracer.extract(residual(), [output], node=["c1"])
    assert (data / "input_0.pb").read_bytes() == b"precious" and len(list(data.iterdir())) == 2
    tracer.extract(residual(), [tmp_path / "part.onnx"], node=["c1"], force=True)
    assert len(values(data, "input")) == 1 == len(values(data, "output"))
    assert not (data / "output_7.pb").exists()
