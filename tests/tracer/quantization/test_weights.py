"""Weights alone in few bits: what the integers stand for, and what keeps its name."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

import tracer
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph import loading
from tracer.quantization.options import QuantizationOptions, WeightOptions
from tracer.quantization.quantizer import quantize_weights

ROWS, INNER, COLUMNS = 3, 70, 9  # 70 is no multiple of a block: the last one is padded


@pytest.fixture
def model(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((INNER, COLUMNS)).astype(np.float32)
    second = rng.standard_normal((COLUMNS, 4)).astype(np.float32)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        onnx.helper.make_node("Relu", ["h"], ["r"], "act"),
        onnx.helper.make_node("MatMul", ["r", "v"], ["y"], "second"),
    ]
    for node in nodes:
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'net.{node.name}']")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", 1, ["batch", INNER])], [value("y", 1, ["batch", 4])],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(second, "v")],
    )  # fmt: skip
    opset = [onnx.helper.make_opsetid("", 20)]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    return loading.load(path)


def run(proto, x, names=None):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(names, {"x": x})[0]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("symmetric", [False, True])
def test_the_weights_that_onnxruntime_multiplies_are_within_half_a_step(
    model, bits, block, symmetric
):
    options = WeightOptions(bits, block, symmetric, nodes=("first",))
    proto = quantize_weights(model, options).proto
    del proto.graph.node[1:]
    proto.graph.output[0].name = "h"
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = COLUMNS
    dequantised = run(proto, np.eye(INNER, dtype=np.float32))
    stored = {w.name: onnx.numpy_helper.to_array(w) for w in proto.graph.initializer}
    weight = onnx.numpy_helper.to_array(next(w for w in model.graph.initializer if w.name == "w"))
    scales = np.repeat(np.abs(stored["w_scales"]).reshape(COLUMNS, -1), block, 1)[:, :INNER].T
    steps = 1.01 if symmetric else 0.51  # the largest value of a symmetric block may be clipped
    assert np.all(np.abs(dequantised - weight) <= steps * scales + 1e-6)
    assert ("w_zero_points" in stored) != symmetric


def test_nodes_keep_name_and_module(model):
    quantized = quantize_weights(model, WeightOptions())
    kinds = {node.key: (node.op_type, node.module) for node in quantized.model.nodes}
    before = {node.key: node.module for node in model.nodes}
    assert kinds == {
        "first": ("MatMulNBits", before["first"]),
        "act": ("Relu", before["act"]),
        "second": ("MatMulNBits", before["second"]),
    }
    assert any("without calibration" in note for note in quantized.notes)


def test_the_accuracy_level_is_stored(model):
    proto = quantize_weights(model, WeightOptions(accuracy_level=4, exclude=("second",))).proto
    node = proto.graph.node[0]
    found = {a.name: a.i for a in node.attribute}
    assert (found["accuracy_level"], found["bits"], found["block_size"]) == (4, 4, 32)
    assert proto.graph.node[2].op_type == "MatMul"


def test_the_api_writes_and_scores(model, tmp_path):
    x = np.random.default_rng(1).standard_normal((20, INNER)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    target = tmp_path / "q.onnx"
    result = tracer.quantize(
        model, output=target, options=WeightOptions(8), test=tmp_path / "x.npz",
        metric="noise", in_process=True,
    )  # fmt: skip
    theirs = run(onnx.load(target), x)
    wide = run(model.proto, x)
    noise = ((theirs - wide) ** 2).sum(1) / (wide**2).sum(1)
    assert result.accuracy is not None
    assert result.accuracy.after == pytest.approx(100 * noise.mean(), rel=0.01)
    assert {layer.node for layer in result.layers} == {"first", "act", "second"}


def test_without_data_nothing_is_measured(model):
    result = tracer.quantize(model, options=WeightOptions(), in_process=True)
    assert result.accuracy is None
    assert result.layers == ()
    assert any("give test=DATA" in note for note in result.notes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((3,), "weights of 3 bits"), ((4, 24), "blocks of 24"), ((4, 32, False, 9), "level 9")],
)
def test_what_the_operator_does_not_have_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        WeightOptions(*arguments)


def test_data_to_calibrate_with_are_refused_and_asked_for(model):
    with pytest.raises(UsageError, match="need no calibration"):
        tracer.quantize(model, "digits", options=WeightOptions(), in_process=True)
    with pytest.raises(UsageError, match="none are given"):
        tracer.quantize(model, options=QuantizationOptions(), in_process=True)


def test_weights_that_onnxruntimes_quantizer_packed_are_not_packed_again(model):
    quantizer = MatMulNBitsQuantizer(deepcopy(model.proto), bits=4)
    quantizer.process()
    packed = quantizer.model.model
    packed.graph.node[0].name = "first"
    assert packed.graph.node[0].op_type == "MatMulNBits"
    with pytest.raises(ModelError, match="quantised already: node 'first' is a MatMulNBits"):
        quantize_weights(loading.from_proto(packed), WeightOptions())


def test_a_model_without_a_product_by_a_matrix_is_refused(model, tmp_path):
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.node[2], proto.graph.node[0]
    proto.graph.node[0].input[0], proto.graph.node[0].output[0] = "x", "y"
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = INNER
    with pytest.raises(ModelError, match="no MatMul by a constant matrix"):
        quantize_weights(loading.from_proto(proto), WeightOptions())
    with pytest.raises(UsageError, match="remains"):
        quantize_weights(model, WeightOptions(nodes=("act",)))
    text = tmp_path / "some.txt"
    text.write_text("some words")
    with pytest.raises(InputError, match="one input of integers"):
        tracer.quantize(model, options=WeightOptions(), test=f"text:{text}", in_process=True)
