"""Weights of fewer than 8 bits: the stored integers and their types, read by onnx and run."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import tracer
import tracer.cli
from models import families
from tests.analyzers.toolchains import networks
from tests.nets import Builder
from tests.tracer.narrowing.oracle import Stored, overflows_on_worst_inputs
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import as_policy
from tracer.errors import ModelError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization import bit_reduction
from tracer.quantization.options import QuantizationOptions

LENET = families.FOLDER / "lenet" / "lenet.int8.onnx"
OPTIONS = {"metric": "noise", "in_process": True, "budget": 100}
TYPES = {
    "int4": (ml_dtypes.int4, 21, 10),
    "uint4": (ml_dtypes.uint4, 21, 10),
    "int2": (ml_dtypes.int2, 25, 13),
    "uint2": (ml_dtypes.uint2, 25, 13),
}
"""Types of weights, and the first opset and version of the format that have them."""


def stored_weights(path):
    """The stored integers of the second inputs of all layers, by layer."""
    proto = onnx.load(path)
    values = {each.name: each for each in proto.graph.initializer}
    made = {name: node for node in proto.graph.node for name in node.output}
    return {
        node.name: values[made[node.input[1]].input[0]]
        for node in proto.graph.node
        if node.op_type in ("Conv", "Gemm", "MatMul")
    }


def magnitudes(path):
    """The largest magnitudes of the stored weights, by layer."""
    stored = stored_weights(path)
    return {k: int(np.abs(numpy_helper.to_array(w).astype(int)).max()) for k, w in stored.items()}


def small(folder, name):
    """A copy of `net.onnx` whose weights have a type of fewer bits: codes about a zero point."""
    dtype, opset, ir = TYPES[name]
    proto = onnx.load(folder / "net.onnx")
    proto.opset_import[0].version, proto.ir_version = opset, ir
    bits, offset = int(name[-1]), 0 if name[0] == "i" else 1 << int(name[-1]) - 1
    step = 256 / (1 << bits)
    for weight in proto.graph.initializer:
        if weight.name.endswith("_int"):
            codes = np.floor(numpy_helper.to_array(weight) / step) + offset
            weight.CopyFrom(numpy_helper.from_array(codes.astype(dtype), weight.name))
        if weight.name in ("w_zero", "v_zero"):
            weight.CopyFrom(numpy_helper.from_array(np.asarray(offset, dtype), weight.name))
        if weight.name in ("w_q_scale", "v_q_scale"):
            wide = numpy_helper.to_array(weight) * np.float32(step)
            weight.CopyFrom(numpy_helper.from_array(wide, weight.name))
    return proto


def run(path, inputs, level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
    """The output of onnxruntime."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    return ort.InferenceSession(path, options).run(None, inputs)[0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bits", [2, 3, 4, 6, 7, 8])
def test_no_stored_weight_has_more_bits(folder, tmp_path, bits):
    output = tmp_path / "n.onnx"
    result = tracer.narrow(
        folder / "net.onnx", "9", folder / "data.npz", weight_bits=bits, output=output, **OPTIONS
    )
    assert all(node.measure and node.fits for node in result.nodes)
    assert max(magnitudes(output).values()) <= (1 << bits - 1) - 1
    stored = Stored(onnx.load(output))
    assert not any(overflows_on_worst_inputs(stored, name, 9) for name in stored.layers)


def test_layers_that_fit_have_so_many_bits_as_well(folder, tmp_path):
    output = tmp_path / "n.onnx"
    result = tracer.narrow(
        folder / "net.onnx", "20", folder / "data.npz", weight_bits=3, output=output, **OPTIONS
    )
    assert not any(node.measure for node in result.nodes)
    assert list(magnitudes(output).values()) == [3, 3]


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    path = tmp_path_factory.mktemp("lenet") / "acc12.onnx"
    return path, tracer.narrow(LENET, "12", "digits", weight_bits=4, output=path, in_process=True)


@pytest.mark.nightly
def test_lenet_in_4_bits_overflows_for_no_input(lenet):
    path, result = lenet
    assert len(result.nodes) == 5 and all(node.fits for node in result.nodes)
    assert max(magnitudes(path).values()) <= 7
    stored = Stored(onnx.load(path))
    worst = [stored.worst(name) for name in stored.layers]
    assert all(bottom >= -(1 << 11) and top < 1 << 11 for top, bottom in worst)
    assert not any(overflows_on_worst_inputs(stored, name, 12) for name in stored.layers)


def test_the_score_before_is_that_of_weights_of_so_many_bits(lenet):
    _, result = lenet
    reduced = bit_reduction.narrow(onnx.load(LENET), 4)
    session = ort.InferenceSession(reduced.SerializeToString())
    (x,) = session.get_inputs()
    dataset = open_dataset("digits", loading.load(LENET))
    hits = [
        session.run(None, {x.name: next(iter(each.inputs.values()))})[0].argmax(1) == each.labels
        for each in dataset.batches(60)
    ]
    assert result.score == pytest.approx(100 * np.concatenate(hits).mean(), abs=0.3)
    assert result.scores.narrowed >= result.score - 1
    assert result.settings["weight_bits"] == 4


@pytest.mark.nightly
def test_a_model_of_4_bits_in_int8_keeps_them(tmp_path):
    path, output = tmp_path / "four.onnx", tmp_path / "n.onnx"
    onnx.save(bit_reduction.narrow(onnx.load(LENET), 4), path)
    tracer.narrow(path, "12", "digits", limit=64, test_limit=20, output=output, in_process=True)
    assert max(magnitudes(path).values()) == max(magnitudes(output).values()) == 7


def test_a_model_in_qonnx_of_4_bits_keeps_them(folder, tmp_path):
    net = networks.perceptron((0.5, 0.1, 0.3, 0.0625))
    for name in ("w", "v"):
        net.tensors[f"{name}_bits"] = np.float32(4)
        net.tensors[f"{name}_scale"] = np.float32(net.tensors[f"{name}_scale"] * 16)
    path, output = tmp_path / "net.qonnx.onnx", tmp_path / "n.onnx"
    onnx.save(net.model("quant", ("N", 12), "second"), path)
    result = tracer.narrow(path, "10", folder / "data.npz", output=output, **OPTIONS)
    assert [node.guaranteed_before for node in result.nodes] == [14, 14]
    assert list(magnitudes(output).values()) == [7, 7]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("guarantee", ["any-input", "this-data"])
@pytest.mark.parametrize("name", TYPES)
def test_small_types_stay_and_onnxruntime_runs_them(folder, tmp_path, name, guarantee):
    """Its optimisations make products of int2 that it has no kernel for, before and after."""
    path, output = tmp_path / "small.onnx", tmp_path / "n.onnx"
    onnx.save(small(folder, name), path)
    before = tracer.narrow(path, "24", folder / "data.npz", **OPTIONS)
    assert not any(node.measure for node in before.nodes)
    result = tracer.narrow(
        path, "9", folder / "data.npz", guarantee=guarantee, output=output, **OPTIONS
    )
    assert all(node.measure for node in result.nodes)
    kind = {"4": onnx.TensorProto.INT4, "2": onnx.TensorProto.INT2}[name[-1]]
    assert [w.data_type for w in stored_weights(output).values()] == [kind] * 2
    inputs = dict(np.load(folder / "data.npz"))
    model = loading.load(output)
    emulation = AccumulatorEmulation(model, as_policy("9(overflow=error)"))
    interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    levels = ort.GraphOptimizationLevel
    level = levels.ORT_DISABLE_ALL if "int2" in name else levels.ORT_ENABLE_ALL
    ours, theirs = interpreter.run(None, inputs)[0], run(output, inputs, level)
    assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-3)
    if guarantee == "any-input":
        stored = Stored(onnx.load(output))
        assert not any(overflows_on_worst_inputs(stored, each, 9) for each in stored.layers)


def quantized_product(net):
    """Adds the product `y` of `x`, in steps of 1 / 255, and weights `w`, `w_scale`, `w_zero`."""
    net.constant("step", np.float32(1 / 255))
    net.constant("zero", np.uint8(0))
    net.node("QuantizeLinear", "q", "x", "step", "zero")
    net.node("DequantizeLinear", "d", "q", "step", "zero")
    net.node("DequantizeLinear", "r", "w", "w_scale", "w_zero", axis=0)
    net.node("Gemm", "y", "d", "r", transB=1)


def save(proto, path):
    """Writes a model in the version of the format that has int4."""
    proto.ir_version = 10
    onnx.save(proto, path)


def test_an_order_of_int4_weights_keeps_their_type(tmp_path):
    random = np.random.default_rng(1)
    net = Builder("net", x=("N", 64))
    signs = np.where(np.arange(64) < 32, 1, -1)
    net.constant("w", (signs * random.integers(3, 8, (6, 64))).astype(ml_dtypes.int4))
    net.constant("w_scale", np.float32(0.1))
    net.constant("w_zero", np.zeros((), ml_dtypes.int4))
    quantized_product(net)
    output = tmp_path / "n.onnx"
    save(net.model("y", opset=21), tmp_path / "net.onnx")
    x = random.uniform(0, 1, (60, 64)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    result = tracer.narrow(tmp_path / "net.onnx", "16", tmp_path / "data.npz",
                           guarantee="this-data", output=output, **OPTIONS)  # fmt: skip
    assert [node.measure for node in result.nodes] == ["ordering"]
    (weights,) = stored_weights(output).values()
    assert weights.data_type == onnx.TensorProto.INT4
    before, after = (run(each, {"x": x}) for each in (tmp_path / "net.onnx", output))
    assert np.allclose(before, after, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [ml_dtypes.uint4, np.uint8])
def test_zero_points_of_channels_add_no_bits(tmp_path, dtype):
    """Codes 0 to 15 about zero points of 0 and 15 are integers from -15 to 15, of 4 bits."""
    random = np.random.default_rng(1)
    net = Builder("net", x=("N", 64))
    net.constant("w", random.integers(0, 16, (6, 64)).astype(dtype))
    net.constant("w_scale", np.full(6, 0.1, np.float32))
    net.constant("w_zero", np.array([0, 15] * 3).astype(dtype))
    quantized_product(net)
    path, output = tmp_path / "net.onnx", tmp_path / "n.onnx"
    save(net.model("y", opset=21), path)
    np.savez(tmp_path / "data.npz", x=random.uniform(0, 1, (60, 64)).astype(np.float32))
    result = tracer.narrow(path, "15", tmp_path / "data.npz", output=output, **OPTIONS)
    assert [(node.measure != "", node.fits) for node in result.nodes] == [(True, True)]
    assert list(magnitudes(output).values()) == [7]
    x = np.load(tmp_path / "data.npz")["x"]
    before, after = (run(each, {"x": x}) for each in (path, output))
    assert 10 * np.log10((before**2).sum() / ((before - after) ** 2).sum()) > 20


@pytest.mark.parametrize("bits", [1, 9, 0, 4.5])
def test_bits_that_cannot_be_are_told(folder, bits):
    with pytest.raises(UsageError, match="weight_bits"):
        tracer.narrow(folder / "net.onnx", "9", folder / "data.npz", weight_bits=bits, **OPTIONS)


def test_more_bits_than_the_type_of_the_weights_are_told(folder, tmp_path):
    onnx.save(small(folder, "int4"), tmp_path / "small.onnx")
    with pytest.raises(UsageError, match=r"8 bits for node .* whose integers are int4"):
        tracer.narrow(tmp_path / "small.onnx", "9", folder / "data.npz", weight_bits=8, **OPTIONS)


def test_a_model_of_integer_operators_is_told(tmp_path):
    tracer.quantize(
        families.FOLDER / "lenet" / "lenet.onnx", "digits", output=tmp_path / "q.onnx", limit=20,
        test_limit=10, options=QuantizationOptions(format="qoperator"),
    )  # fmt: skip
    with pytest.raises(ModelError, match="only graphs in qdq form can have fewer bits"):
        tracer.narrow(tmp_path / "q.onnx", "16", "digits", weight_bits=4, test_limit=10)


def narrowed_by_command(folder, *options):
    """The exit code of the command."""
    argv = ["narrow", folder / "net.onnx", "--data", folder / "data.npz", "--metric", "noise",
            "--bits", "9", *options]  # fmt: skip
    return tracer.cli.main([str(each) for each in argv])


def test_the_command_writes_a_model_with_so_many_bits(folder, tmp_path, capfd):
    output = tmp_path / "n.onnx"
    assert narrowed_by_command(folder, "--weight-bits", "3", "-o", output) == 0
    assert "net.onnx · sums of 9 bits, weights of 3 bits" in capfd.readouterr().out
    assert max(magnitudes(output).values()) <= 3


@pytest.mark.parametrize("bits", ["1", "9", "x"])
def test_the_command_tells_bits_that_cannot_be(folder, bits, capfd):
    assert narrowed_by_command(folder, "--weight-bits", bits) == 2
    assert "--weight-bits" in capfd.readouterr().err
