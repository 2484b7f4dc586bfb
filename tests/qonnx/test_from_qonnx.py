"""QONNX as ONNX's own operators: onnxruntime computes what QONNX's operators mean."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tracer
from tests.qonnx.cases import Case, cases
from tests.qonnx.networks import QonnxGraph, network
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization.from_qonnx import from_qonnx, runnable
from tracer.quantization.to_qonnx import to_qonnx

QUANTS = [case for case in cases() if case.op_type in ("Quant", "IntQuant", "BipolarQuant")]


def _onnxruntime(proto, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def _model(case: Case, is_stored: bool) -> onnx.ModelProto:
    graph = QonnxGraph()
    source = graph.constant(case.x) if is_stored else "x"
    inputs = [graph.constant(each) for each in case.arrays[1:]]
    y = graph.add(case.op_type, source, *inputs, domain=graph.domain, **case.attributes)
    y = graph.add("Mul", y, "x") if is_stored else graph.add("Identity", y)
    shape = (1,) if is_stored else case.x.shape
    proto = graph.model(y, shape)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info(y, 1, case.x.shape))
    return proto


@pytest.mark.parametrize("is_stored", [False, True])
def test_every_kind_of_quant(is_stored):
    """Ties beside an odd zero point round differently, so they are left out."""
    converted = 0
    for case in QUANTS:
        odd = case.op_type == "Quant" and np.any(case.arrays[2] % 2)
        x = np.where(np.isfinite(case.x), case.x, 0.7).astype(np.float32)
        x += np.float32(0.003) if odd else np.float32(0)
        case = Case(case.op_type, x, case.inputs, case.attributes)
        proto = _model(case, is_stored)
        feed = np.ones(1, np.float32) if is_stored else x
        result = from_qonnx(proto)
        if result.left:
            assert case.attributes["rounding_mode"] not in ("ROUND", "FLOOR", "CEIL")
            continue
        converted += 1
        (expected,) = Interpreter(proto).run(None, {"x": feed})
        np.testing.assert_allclose(_onnxruntime(result.proto, feed), expected, 1e-6, 0, str(case))
    assert converted > len(QUANTS) / 3


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_network(bits):
    proto, _ = network(bits, bits)
    x = np.random.default_rng(3).normal(0, 0.4, (2, 3, 16, 16)).astype(np.float32)
    result = from_qonnx(proto)
    assert (result.integers, result.floats) == ((4, 2) if bits == 1 else (6, 0))
    (expected,) = Interpreter(proto).run(None, {"x": x})
    np.testing.assert_allclose(_onnxruntime(result.proto, x), expected, 1e-4, 1e-4)
    if bits > 1:  # back again
        (again,) = Interpreter(to_qonnx(result.proto)).run(None, {"x": x})
        np.testing.assert_allclose(again, expected, 1e-4, 1e-4)


def _old(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model as exporters wrote it: opset 9, no import of the domain, weights as inputs."""
    del proto.opset_import[:]
    proto.opset_import.add(domain="", version=9)
    proto.ir_version = 4
    for node in proto.graph.node:
        node.domain = "onnx.brevitas" if node.domain else ""
    for tensor in proto.graph.initializer:
        proto.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    return proto


def test_an_old_model_is_profiled_with_its_names():
    proto, layers = network(4, 3)
    expected = Interpreter(proto)
    old = _old(proto)
    model = loading.from_proto(old)
    converted = runnable(model)
    assert len(converted.notes) == 2
    assert "does not import 'onnx.brevitas'" in converted.notes[0]
    assert "6 of QONNX's nodes became QuantizeLinear" in converted.notes[1]
    x = np.random.default_rng(3).normal(0, 0.4, (2, 3, 16, 16)).astype(np.float32)
    np.testing.assert_allclose(
        _onnxruntime(converted.proto, x), expected.run(None, {"x": x})[0], 1e-4, 1e-4
    )
    trace = tracer.profile(old, runs=2, warmup=0)
    assert {layer.name for layer in layers} <= set(trace.nodes["node"])
    assert set(converted.notes) <= set(trace.notes)


def test_a_model_without_qonnx_is_the_model_itself():
    graph = QonnxGraph()
    model = loading.from_proto(graph.model(graph.add("Relu", "x"), (2,)))
    assert runnable(model) is model


def test_what_has_no_conversion_stays():
    graph = QonnxGraph()
    y = graph.add("MultiThreshold", "x", graph.constant(np.ones((1, 3), np.float32)),
                  domain=graph.domain, out_dtype="UINT2")  # fmt: skip
    z = graph.quant(y, 1, 0, 2, signed=0)
    result = from_qonnx(graph.model(z, (2, 2)))
    assert result.left == (y,)
    assert result.note.endswith(f"; {y} stayed")
