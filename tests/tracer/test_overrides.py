"""Weights that are inputs too may be fed: everywhere alike, as onnxruntime does it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tracer
from tests.graphs import parse
from tracer.cli import main
from tracer.errors import InputError

INTEGERS = """
<ir_version: 10, opset_import: ["": 20]>
products (int8[1,2] x, int8[2,1] w) => (int32[1,1] y) { [n] y = MatMulInteger (x, w) }
"""
FLOATS = """
<ir_version: 10, opset_import: ["": 20]>
products (float[1,2] x, float[2,1] w) => (float[1,1] y) { [n] a = MatMul (x, w) y = Relu (a) }
"""


def with_default(text, default, ir_version=10):
    """The model with a default of its input `w`."""
    proto = parse(text)
    proto.graph.initializer.append(numpy_helper.from_array(default, "w"))
    proto.ir_version = ir_version
    return proto


@pytest.fixture
def integers(tmp_path):
    """A model, a file of inputs that overrides its weights, and what onnxruntime makes of it."""
    path = tmp_path / "model.onnx"
    onnx.save(with_default(INTEGERS, np.ones((2, 1), np.int8)), path)
    feeds = {"x": np.ones((1, 2), np.int8), "w": np.full((2, 1), 100, np.int8)}
    np.savez(tmp_path / "x.npz", **feeds)
    (expected,) = onnxruntime.InferenceSession(path).run(None, feeds)
    assert expected.item() == 200
    return path, tmp_path / "x.npz", feeds, expected


def outputs_of(path, **options):
    received = []
    trace = tracer.interpret(
        path, receive=lambda *a: received.append(a[-1]), in_process=True, **options
    )
    (outputs,) = received
    return trace, np.asarray(outputs["y"] if isinstance(outputs, dict) else outputs[0])


@pytest.mark.parametrize("accumulator", [None, 32])
def test_the_interpreter_and_onnxruntime_take_the_fed_weights(integers, accumulator):
    path, file, _, expected = integers
    trace, found = outputs_of(path, inputs=file, accumulator=accumulator)
    assert np.array_equal(found, expected)
    if accumulator is not None:
        (row,) = trace.nodes.to_dict("records")
        assert row["bits_observed"] == 9  # 200 in two's complement
    assert tracer.profile(path, inputs=file, runs=2).notes.count(f"inputs are those of {file}") == 1


def test_an_interpreter_takes_them_in_each_run_anew(integers):
    path, _, feeds, expected = integers
    interpreter = tracer.Interpreter(path)
    session = onnxruntime.InferenceSession(path)
    for fed in (feeds, {"x": feeds["x"]}, feeds | {"w": np.full((2, 1), -7, np.int8)}):
        (found,) = interpreter.run(None, fed)
        assert np.array_equal(found, session.run(None, fed)[0])
    assert np.array_equal(interpreter.run(None, feeds)[0], expected)
    with pytest.raises(InputError, match="no input 'typo'"):
        interpreter.run(None, feeds | {"typo": np.zeros(3)})
    with pytest.raises(InputError, match=r"'w'.*int8.*but float64"):
        interpreter.run(None, feeds | {"w": np.zeros((2, 1))})


def test_bounds_hold_for_any_weights_that_may_be_fed(integers):
    path, file, feeds, _ = integers
    np.savez(file.parent / "plain.npz", x=feeds["x"])
    plain = tracer.interpret(path, inputs=file.parent / "plain.npz", accumulator=32)
    fed = tracer.interpret(path, inputs=file, accumulator=32)
    largest = 2 * 128 * 128  # x and w of -128
    for trace in (plain, fed):
        assert trace.nodes["bits_guaranteed"].item() == largest.bit_length() + 1
    proto = onnx.load(path)
    del proto.graph.input[1]  # no default, but a constant
    constant = tracer.interpret(proto, inputs=file.parent / "plain.npz", accumulator=32)
    assert constant.nodes["bits_guaranteed"].item() == 9  # from -256 to 254
    told = "weights are listed among the inputs: bits_guaranteed holds for any that are fed"
    assert [told in each.notes for each in (plain, fed, constant)] == [True, False, False]


def test_scales_of_channels_are_those_of_weights_that_may_be_fed(tmp_path):
    """As Brevitas writes QONNX: the scale of a channel has the axes of the weights."""
    stored = {
        "w": np.linspace(-1, 1, 18, dtype=np.float32).reshape(2, 1, 3, 3),
        "ws": np.array([0.1, 0.2], np.float32).reshape(2, 1, 1, 1),
        "xs": np.array(0.05, np.float32),
        "zero": np.array(0, np.float32),
        "bits": np.array(4, np.float32),
    }
    domain = "qonnx.custom_op.general"
    quant = {"domain": domain, "signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    nodes = [
        helper.make_node("Quant", ["x", "xs", "zero", "bits"], ["a"], **quant),
        helper.make_node("Quant", ["w", "ws", "zero", "bits"], ["b"], **quant),
        helper.make_node("Conv", ["a", "b"], ["y"], "conv", group=2),
    ]
    value = helper.make_tensor_value_info
    listed = [value(name, TensorProto.FLOAT, array.shape) for name, array in stored.items()]
    x, y = value("x", TensorProto.FLOAT, [1, 2, 5, 5]), value("y", TensorProto.FLOAT, [1, 2, 3, 3])
    weights = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    bits = []
    for inputs in ([x, *listed], [x]):
        graph = helper.make_graph(nodes, "g", inputs, [y], weights)
        onnx.save(
            helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx"
        )
        trace = tracer.interpret(tmp_path / "net.onnx", accumulator=32, in_process=True)
        bits.append(trace.nodes.set_index("node")["bits_guaranteed"]["conv"])
    assert bits[0] == 11  # 9 products of -8 and -8 are 576
    assert bits[1] < 11


def test_a_sweep_takes_the_weights_of_the_data(tmp_path):
    scale = [numpy_helper.from_array(np.array(0.5, np.float32), name) for name in ("s", "t")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s"], ["b"]),
        helper.make_node("DequantizeLinear", ["w", "t"], ["c"]),
        helper.make_node("MatMul", ["b", "c"], ["y"], "n"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, ["N", 4]), value("w", TensorProto.UINT8, [4, 2])],
        [value("y", TensorProto.FLOAT, ["N", 2])],
        [*scale, numpy_helper.from_array(np.zeros((4, 2), np.uint8), "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path, data = tmp_path / "model.onnx", tmp_path / "data.npz"
    onnx.save(proto, path)
    weights = np.array([[200, 0], [200, 0], [0, 90], [0, 90]], np.uint8)
    samples = np.where(np.arange(8)[:, None] % 2, [1, 1, 0, 0], [0, 0, 1, 1]).astype(np.float32)
    (scores,) = onnxruntime.InferenceSession(path).run(None, {"x": samples, "w": weights})
    labels = scores.argmax(1)
    assert set(labels) == {0, 1}
    np.savez(data, x=samples, w=weights, y=labels)
    answer = tracer.what_if(path, accumulator="16:20:4", data=data)
    assert answer.variants[0].answer.score == 100.0


def test_weights_of_old_files_are_constants_there_and_in_onnxruntime(tmp_path):
    path, file = tmp_path / "model.onnx", tmp_path / "x.npz"
    onnx.save(with_default(FLOATS.replace("10", "3").replace("20", "8"),
                           np.ones((2, 1), np.float32), 3), path)  # fmt: skip
    feeds = {"x": np.ones((1, 2), np.float32), "w": np.full((2, 1), 3, np.float32)}
    np.savez(file, **feeds)
    with pytest.raises(Exception, match="w"):
        onnxruntime.InferenceSession(path).run(None, feeds)
    for run in (tracer.profile, tracer.interpret, tracer.count):
        with pytest.raises(InputError, match=r"w unknown|no input 'w'"):
            run(path, inputs=file)


@pytest.mark.parametrize("accumulator", [None, 32])
@pytest.mark.parametrize("typo", ["typo", "ww"])
def test_arrays_of_other_names_are_refused_by_name(integers, accumulator, typo):
    path, file, feeds, _ = integers
    np.savez(file, **feeds, **{typo: np.zeros(3)})
    with pytest.raises(InputError, match=typo) as error:
        tracer.interpret(path, inputs=file, accumulator=accumulator)
    assert "x, w" in str(error.value.hint)


def test_what_a_session_makes_of_listed_weights_is_told(integers, capsys):
    path, *_ = integers
    told = "1 weight is listed among the inputs: onnxruntime folds none of them, and may fuse less"
    assert any(note.startswith(told) for note in tracer.count(path).notes)
    assert main(["profile", str(path), "--runs", "2"]) == 0
    assert "--try unlisted_weights" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("ir_version", [3, 10])
def test_the_kernels_of_listed_weights_are_those_of_a_session_of_the_file(tmp_path, ir_version):
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 17]>
        net (float[1,4,8,8] x, float[4,4,3,3] w, float[4] s, float[4] b, float[4] m, float[4] v)
            => (float[1,4,8,8] y)
        { [c] a = Conv <pads = [1, 1, 1, 1]> (x, w) [n] y = BatchNormalization (a, s, b, m, v) }""")
    for value in proto.graph.input[1:]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        weight = numpy_helper.from_array(np.ones(shape, np.float32), value.name)
        proto.graph.initializer.append(weight)
    proto.ir_version = ir_version
    path, saved = tmp_path / "net.onnx", tmp_path / "saved.onnx"
    onnx.save(proto, path)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(saved)
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = [
        node.op_type for node in onnx.load(saved).graph.node if "Reorder" not in node.op_type
    ]
    assert len(expected) == {3: 1, 10: 2}[ir_version]
    run = tracer.profile(path, runs=2).runs[0]
    ran = [kernel.op_type for kernel in run.kernels if "Reorder" not in kernel.op_type]
    assert ran == expected


def test_what_the_note_on_listed_weights_says_is_what_onnxruntime_does(tmp_path):
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 17]>
        net (float[1,4,8,8] x, float[4,4,3,3] w, float[4] s) => (float[1,4,8,8] y)
        {
            c = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu (c)
            e = Exp (w)
            d = Conv <pads = [1, 1, 1, 1]> (r, e) y = BatchNormalization (d, s, s, s, s)
        }""")
    for name, shape in (("w", (4, 4, 3, 3)), ("s", (4,))):
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    path, saved = tmp_path / "net.onnx", tmp_path / "saved.onnx"
    onnx.save(proto, path)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(saved)
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    kernels = sorted(node.op_type for node in onnx.load(saved).graph.node)
    assert kernels == ["BatchNormalization", "Conv", "Exp", "FusedConv"]  # Conv and Relu are one
    (note,) = (note for note in tracer.count(path).notes if "listed among the inputs" in note)
    assert "folds none of them" in note  # Exp of a weight stays
    assert "may fuse less" in note  # Conv and BatchNormalization stay apart
    assert "nor fuses" not in note
