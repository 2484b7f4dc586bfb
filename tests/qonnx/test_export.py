"""`tracer export --to`: a quantised model in another form, and what cannot be."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import tracer
from tests.qonnx.networks import network
from tracer.errors import UsageError
from tracer.exporters.records import ExportOptions
from tracer.interpreter.interpreter import Interpreter

LENET = Path(__file__).parents[2] / "models" / "lenet" / "lenet.int8.onnx"


def _types(path):
    return {node.op_type for node in onnx.load(path).graph.node}


def test_to_qonnx_and_back(tmp_path):
    there, back = tmp_path / "net.qonnx.onnx", tmp_path / "net.qdq.onnx"
    exported = tracer.export(str(LENET), there, options=ExportOptions(to="qonnx"))
    assert exported.max_abs_error == 0
    assert exported.dynamic_batch
    assert "Quant" in _types(there)
    assert "QuantizeLinear" not in _types(there)
    tracer.export(str(there), back, options=ExportOptions(to="qdq"))
    assert "Quant" not in _types(back)
    x = np.random.default_rng(0).random((2, 3, 32, 32), dtype=np.float32)
    name = onnx.load(LENET).graph.input[0].name
    outputs = [Interpreter(path).run(None, {name: x})[0] for path in (LENET, there, back)]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_allclose(outputs[0], outputs[2], 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("model", "to", "problem"),
    [
        ("net.py:Net", "qonnx", "is a model of a framework"),
        (str(LENET), "qdq", "no Quant of QONNX"),
        (str(LENET), "qkeras", "no format 'qkeras'"),
    ],
)
def test_what_is_refused(tmp_path, model, to, problem):
    with pytest.raises(UsageError, match=problem):
        tracer.export(model, tmp_path / "out.onnx", options=ExportOptions(to=to))
    assert not (tmp_path / "out.onnx").exists()


def test_a_model_in_memory(tmp_path):
    proto, _ = network(3, 3)
    exported = tracer.export(proto, tmp_path / "a.onnx", options=ExportOptions(to="qdq"))
    assert exported.notes == (
        "onnxruntime has no operators of QONNX: 6 of QONNX's nodes became QuantizeLinear, Clip and "
        "DequantizeLinear",
    )
    assert exported.max_abs_error < 1e-4
