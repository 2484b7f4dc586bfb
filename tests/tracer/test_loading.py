import os
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper

import tracer
from tests.graphs import parse, residual
from tracer.errors import ModelError
from tracer.graph import loading, validation
from tracer.interpreter.interpreter import Interpreter

HEAD = '<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] y) '

LOOPED = (
    '<ir_version: 8, opset_import: ["": 16]> g (float[2] x, int64 k) => (float[2] y) '
    "{{ y = Loop (k, , x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] n) "
    "{{ on = Identity (go) {} }}> late = Relu (x) }}"
)

WRONG_GRAPHS = {
    "a cycle": (HEAD + "{ a = Add (x, y)  y = Relu (a) }", "cycle through node Add_0"),
    "undefined": (HEAD + "{ y = Relu (nope) }", "reads 'nope', which no node of 'g' computes"),
    "not SSA": (HEAD + "{ y = Relu (x)  y = Tanh (x) }", "'y' is written twice, again by"),
    "a body with a cycle": (
        LOOPED.format("a = Add (s, n)  n = Relu (a)"),
        "cycle through node Add_1, in body 'b' of node Loop_0",
    ),
    "an unsorted body": (
        LOOPED.format("n = Relu (a)  a = Tanh (s)"),
        "not sorted: node Relu_1 reads 'a' before it is computed, in body 'b' of node Loop_0",
    ),
    "a body that reads what nothing makes": (
        LOOPED.format("n = Relu (nope)"),
        "node Relu_1 reads 'nope', which no node of 'b' computes, in body 'b' of node Loop_0",
    ),
    "an operator there is none of": (HEAD + "{ y = Magic (x) }", "No Op registered for Magic"),
}

FOREIGN_FILES = {
    "empty": (b"", "the file is empty"),
    "text": (b"this is a text file, not a model", "a text file"),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(20), "gzip"),
    "zip": (b"PK\x03\x04" + bytes(20), "zip archive"),
    "safetensors": (b"\x10\0\0\0\0\0\0\0" + b'{"a":{}}' + bytes(8), "safetensors"),
    "noise": (bytes(range(128, 228)), "does not parse"),
}


@pytest.mark.parametrize(("text", "message"), WRONG_GRAPHS.values(), ids=WRONG_GRAPHS)
def test_a_broken_graph_is_named_with_its_fault(text, message, tmp_path):
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    with pytest.raises(ModelError, match=r"m\.onnx") as caught:
        loading.load(tmp_path / "m.onnx")
    assert message in str(caught.value)


UNSORTED = {
    "nodes": HEAD + "{ y = Relu (b)  b = Sqrt (a)  a = Abs (x) }",
    "what a body reads": LOOPED.format("n = Add (s, late)"),
}


@pytest.mark.parametrize("text", UNSORTED.values(), ids=UNSORTED)
@pytest.mark.parametrize("external", [False, True])
def test_unsorted_nodes_are_sorted_and_noted_as_onnxruntime_takes_them(text, external, tmp_path):
    proto = onnx.parser.parse_model(text)
    weight = onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")
    proto.graph.initializer.append(weight)
    proto.graph.node.add(op_type="Add", input=["x", "w"], output=["unread"])
    file, feeds = tmp_path / "m.onnx", {"x": np.array([-4, 9], np.float32), "k": np.array(2)}
    onnx.save(proto, file, save_as_external_data=external, location="w.bin", size_threshold=0)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    feeds = {each.name: feeds[each.name] for each in session.get_inputs()}
    model = loading.load(file)
    assert model.notes == (validation.UNSORTED_NOTE,)
    assert validation.is_sorted(model.graph)
    np.testing.assert_allclose(Interpreter(model).run(None, feeds), session.run(None, feeds))
    assert tracer.count(file).notes[0] == validation.UNSORTED_NOTE
    stored = onnx.load(file, load_external_data=False)
    assert [each.op_type for each in stored.graph.node] == [
        each.op_type for each in proto.graph.node
    ]


def test_a_sorted_model_stays_as_it_is():
    proto = residual()
    assert loading.from_proto(proto).proto is proto


@pytest.mark.parametrize(("data", "message"), FOREIGN_FILES.values(), ids=FOREIGN_FILES)
def test_a_file_that_is_no_model_is_named_for_what_it_is(data, message, tmp_path):
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(ModelError, match=message):
        loading.load(tmp_path / "m.onnx")


def test_every_truncation_of_a_model_is_refused_in_our_own_words(tmp_path):
    whole = residual().SerializeToString()
    for length in range(1, len(whole), 97):
        (tmp_path / "m.onnx").write_bytes(whole[:length])
        with pytest.raises(ModelError):
            loading.load(tmp_path / "m.onnx")


def test_a_link_to_nothing_is_told_with_its_target(tmp_path):
    (tmp_path / "net.onnx").symlink_to("gone.onnx")
    with pytest.raises(ModelError, match=r"net\.onnx is a link to gone\.onnx, which is not there"):
        loading.load(tmp_path / "net.onnx")


def test_a_folder_means_the_model_in_it(tmp_path):
    with pytest.raises(ModelError, match=r"holds no \.onnx file"):
        loading.load(tmp_path)
    onnx.save(residual(), tmp_path / "other.onnx")
    assert loading.load(tmp_path).path == tmp_path / "other.onnx"
    onnx.save(residual(), tmp_path / "model.onnx")
    assert loading.load(tmp_path).path == tmp_path / "model.onnx"


def test_external_data_are_not_read_but_must_be_there(tmp_path):
    file = tmp_path / "m.onnx"
    onnx.save(residual(), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert not any(w.raw_data for w in loading.load(file).graph.initializer)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"w\.bin") as caught:
        loading.load(file)
    assert "standard input has none" in str(caught.value)  # a model that was piped has no folder


def test_external_data_outside_the_folder_are_refused(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(10_000))
    (tmp_path / "inside").mkdir()
    file = tmp_path / "inside" / "m.onnx"
    onnx.save(residual(), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    proto = onnx.load(file, load_external_data=False)
    for weight in proto.graph.initializer:
        for entry in weight.external_data:
            if entry.key == "location":
                entry.value = "../secret"
    file.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"\.\./secret"):
        loading.load(file)


def test_weights_that_old_exporters_list_as_inputs_are_not_inputs():
    proto = residual()
    proto.graph.input.append(helper.make_tensor_value_info("wf", 1, [16, 10]))
    assert [v.name for v in loading.from_proto(proto).inputs] == ["x"]


def test_a_sparse_initializer_is_not_an_input():
    values = helper.make_tensor("s", onnx.TensorProto.FLOAT, [1], [2.0])
    indices = helper.make_tensor("i", onnx.TensorProto.INT64, [1], [1])
    proto = parse(HEAD + "{ y = Add (x, s) }")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    assert [v.name for v in loading.from_proto(proto).inputs] == ["x"]


def test_a_path_that_the_system_refuses_is_told(tmp_path):
    with pytest.raises(ModelError, match=r"x: cannot be read \(File name too long"):
        loading.load(tmp_path / ("x" * 300))


def untyped(where, field):
    """A model whose input or output lacks its shape, or its whole type."""
    proto = residual()
    value = getattr(proto.graph, where)[0]
    (value.type.tensor_type if field == "shape" else value).ClearField(field)
    return proto


@pytest.mark.parametrize(("where", "field"), [("input", "shape"), ("output", "shape"),
                                              ("output", "type")])  # fmt: skip
def test_a_rank_may_be_left_open_as_runtimes_allow(where, field, tmp_path):
    proto = untyped(where, field)
    assert onnxruntime.InferenceSession(proto.SerializeToString())
    onnx.save(proto, tmp_path / "m.onnx")
    for model in (loading.load(tmp_path / "m.onnx"), loading.from_proto(proto)):
        assert model.proto == proto


def test_an_input_without_a_type_is_named(tmp_path):
    with pytest.raises(ModelError, match="input 'x' has no type"):
        loading.from_proto(untyped("input", "type"))


def test_a_model_of_open_rank_is_checked_in_all_else(tmp_path):
    proto = untyped("output", "shape")
    proto.graph.node[2].op_type = "Magic"
    with pytest.raises(ModelError, match="No Op registered for Magic"):
        loading.from_proto(proto)


def test_a_model_with_onnxruntimes_operators_is_checked_in_all_else():
    proto = loading.from_proto(onnx.parser.parse_model(HEAD + "{ y = Relu (x) }")).proto
    proto.graph.node[0].op_type = "SimplifiedLayerNormalization"
    proto.graph.node[0].input.append("x")
    assert loading.from_proto(proto).nodes[0].domain == ""
    proto.graph.node.add(op_type="Magic", input=["y"], output=["z"])
    with pytest.raises(ModelError, match="No Op registered for Magic"):
        loading.from_proto(proto)


@pytest.mark.parametrize("damage", ["gone", "short", "outside", "a link"])
def test_external_data_of_a_model_of_open_rank_are_verified(damage, tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    file, data = folder / "m.onnx", folder / "w.bin"
    proto = untyped("output", "shape")
    onnx.save(proto, file, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert loading.load(file).graph.initializer[0].external_data
    content = data.read_bytes()
    data.unlink()
    if damage == "short":
        data.write_bytes(content[:-1])
    if damage in ("outside", "a link"):
        (tmp_path / "w.bin").write_bytes(content)
    if damage == "a link":
        data.symlink_to(tmp_path / "w.bin")
    if damage == "outside":
        file.write_bytes(file.read_bytes().replace(b"\x05w.bin", b"\x05../w."))
        (tmp_path / "w.").write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.onnx.*(w\.|external)"):
        loading.load(file)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_path_that_is_not_utf8_is_named(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    for file in (tmp_path / os.fsdecode(b"\xff.onnx"), folder / "m.onnx"):
        onnx.save(residual(), file)
        with pytest.raises(ModelError, match="whose path is not UTF-8"):
            loading.load(file)


LITTLE_MEMORY = """
import resource
import onnx
from onnx import helper
from tracer.errors import LimitError
from tracer.graph import loading
weight = helper.make_tensor("w", onnx.TensorProto.UINT8, [60 << 20], bytes(60 << 20), raw=True)
node = helper.make_node("Identity", ["w"], ["y"])
value = helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [60 << 20])
proto = helper.make_model(helper.make_graph([node], "g", [], [value], [weight]), ir_version=9)
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used + (20 << 20),) * 2)
try:
    loading.from_proto(proto)
except LimitError as error:
    print(error)
"""


def test_a_model_that_the_memory_cannot_hold_twice_is_one_clear_error():
    ran = subprocess.run([sys.executable, "-c", LITTLE_MEMORY], capture_output=True, text=True)
    assert ran.stdout.startswith("<model in memory>: the model is larger than"), ran.stderr
    assert "--max-memory" in ran.stdout
