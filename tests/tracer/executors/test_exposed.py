"""Graphs as onnxruntime saves them, run with every tensor shown."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import tracer
from tests.graphs import residual
from tracer.executors.onnxruntime import all_outputs

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
SCALES = {"xs": np.float32(0.02), "ws": np.float32(0.01), "ys": np.float32(0.5)}
GRAPHS = {
    "QLinearConv": """g (uint8[1,2,6,6] x) => (uint8[1,N,H,W] y) {
      y = QLinearConv (x, xs, xz, w, ws, wz, ys, xz) }""",
    "ConvInteger": """g (uint8[1,2,6,6] x) => (int32[1,N,H,W] y) { y = ConvInteger (x, w) }""",
    "QLinearMatMul": """g (uint8[4,5] x) => (uint8[4,N] y) {
      y = QLinearMatMul (x, xs, xz, w, ws, wz, ys, xz) }""",
    "MatMulInteger": """g (uint8[4,5] x) => (int32[4,N] y) { y = MatMulInteger (x, w, xz, wz) }""",
}


@pytest.mark.parametrize("zero", [0, -7, 5])
@pytest.mark.parametrize("op", GRAPHS)
def test_weights_in_uint8_mean_the_same(op, zero, tmp_path):
    rng = np.random.default_rng(0)
    shape = (3, 2, 3, 3) if "Conv" in op else (5, 3)
    weights = {
        **SCALES, "xz": np.uint8(12), "wz": np.int8(zero),
        "w": rng.integers(-128, 128, shape).astype(np.int8),
    }  # fmt: skip
    model = onnx.parser.parse_model(HEAD + GRAPHS[op])
    stored = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    model.graph.initializer.extend(stored)
    size = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": rng.integers(0, 256, size).astype(np.uint8)}
    before = ReferenceEvaluator(model).run(None, feeds)
    all_outputs.shift_int8_weights(model, tmp_path)
    kinds = {w.name: w.data_type for w in model.graph.initializer}
    place = 1 if op.endswith("Integer") else 3
    assert kinds[model.graph.node[0].input[place]] == onnx.TensorProto.UINT8
    np.testing.assert_array_equal(ReferenceEvaluator(model).run(None, feeds), before)


def test_external_weights_in_uint8_stay_external(tmp_path):
    rng, size = np.random.default_rng(0), 320  # bytes enough to be mapped
    weights = {**SCALES, "xz": np.uint8(12), "wz": np.int8(-3)}
    weights["w"] = rng.integers(-128, 128, (size, size)).astype(np.int8)
    model = onnx.parser.parse_model(HEAD + GRAPHS["QLinearMatMul"].replace("4,5", f"4,{size}"))
    stored = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    model.graph.initializer.extend(stored)
    feeds = {"x": rng.integers(0, 256, (4, size)).astype(np.uint8)}
    before = ReferenceEvaluator(model).run(None, feeds)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=1024)
    apart = onnx.load(path, load_external_data=False)
    all_outputs.shift_int8_weights(apart, tmp_path)
    assert apart.ByteSize() < size**2 / 10
    onnx.save(apart, path)
    (after,) = ort.InferenceSession(path).run(None, feeds)
    np.testing.assert_array_equal(after, before[0])


def test_weights_that_old_models_list_as_inputs_do_not_stand_in_the_way():
    model = residual()
    model.ir_version = 3
    for weight in model.graph.initializer:
        kind = onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
        model.graph.input.append(kind)
    shape = onnx.helper.make_node("Shape", ["wf"], ["s"])  # folded, and its input left over
    model.graph.node.insert(0, shape)
    model.graph.output.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.INT64, [2]))
    result = tracer.fusions(model)
    assert result.inputs == 2, result.notes


def test_external_weights_are_found(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(
        residual(), path, save_as_external_data=True, location="net.weights", size_threshold=16
    )
    result = tracer.fusions(path)
    assert result.inputs == 2
    assert {row.verdict for row in result.kernels if row.nodes} == {"confirmed"}


def test_tensors_numpy_has_no_type_for_are_left_out_and_the_others_compared():
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (bfloat16[4] x, float[4] z) => (bfloat16[4] y, float[4] w) {
      y = Identity (x)
      f = Cast <to = 1> (x)
      w = Mul (f, z)
    }
    """
    result = tracer.fusions(onnx.parser.parse_model(text), optimization="none")
    verdicts = {row.op_type: row.verdict for row in result.kernels}
    assert result.inputs == 2
    assert verdicts["Mul"] == "confirmed"
    assert verdicts["Identity"] == "not confirmed"
    assert "contradicted" not in verdicts.values()
