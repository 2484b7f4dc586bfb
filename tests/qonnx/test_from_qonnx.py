"""QONNX as ONNX's own operators: onnxruntime computes what QONNX's operators mean."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tracer
from tests.qonnx.cases import Case, cases, recorded
from tests.qonnx.networks import DOMAIN, QonnxGraph, network
from tracer.api.compare import SideSettings
from tracer.errors import ModelError
from tracer.exporters.subject import runnable_form
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization.from_qonnx import from_qonnx
from tracer.quantization.to_qonnx import to_qonnx
from tracer.support.tolerance import Tolerance

CASES = list(cases())


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


@pytest.mark.one_in(2)
@pytest.mark.parametrize("is_stored", [False, True])
def test_every_operator_has_the_values_that_qonnx_computed(is_stored):
    """Ties beside an odd zero point round differently as integers, so they are left out."""
    known, cases_as = recorded(), {"integers": 0, "floats": 0}
    for case in CASES:
        expected = known[f"{case} {list(case.x.shape)}"].reshape(case.x.shape)
        proto = _model(case, is_stored)
        feed = np.ones(1, np.float32) if is_stored else case.x
        result = from_qonnx(proto)
        assert not result.left, str(case)
        cases_as["integers"] += result.integers
        cases_as["floats"] += result.floats
        computed = _onnxruntime(result.proto, feed)
        kept = ~_ties(case) if result.integers else np.ones(case.x.shape, bool)
        np.testing.assert_allclose(computed[kept], expected[kept], 1e-6, 0, err_msg=str(case))
    assert min(cases_as.values()) > 9, cases_as


def _ties(case: Case) -> np.ndarray:
    """Whether numbers of a Quant with an odd zero point lie halfway between two integers."""
    if case.op_type == "BipolarQuant" or not np.any(case.arrays[2] % 2):
        return np.zeros(case.x.shape, bool)
    x = np.where(np.isfinite(case.x), case.x, 0)
    return np.abs(x / case.arrays[1] % 1) == 0.5


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


@pytest.mark.nightly
def test_an_old_model_is_profiled_with_its_names():
    proto, layers = network(4, 3)
    expected = Interpreter(proto)
    old = _old(proto)
    model = loading.from_proto(old)
    converted = runnable_form(model)
    imported, listed, replaced = converted.notes
    assert "does not import 'onnx.brevitas'" in imported
    assert "21 weights are listed among the inputs" in listed
    assert "6 of QONNX's nodes became QuantizeLinear" in replaced
    x = np.random.default_rng(3).normal(0, 0.4, (2, 3, 16, 16)).astype(np.float32)
    np.testing.assert_allclose(
        _onnxruntime(converted.executed.proto, x), expected.run(None, {"x": x})[0], 1e-4, 1e-4
    )
    trace = tracer.profile(old, runs=2, warmup=0)
    assert set(model.keys) - set(trace.nodes["node"]) == set()
    own = trace.nodes.set_index("node")
    assert {layer.name for layer in layers} <= set(own.index[own["time_us"].notna()])
    added = set(converted.executed.keys) - set(model.keys)
    assert added and added.isdisjoint(own.index)
    assert set(converted.notes) <= set(trace.notes)


def test_a_model_without_qonnx_is_the_model_itself():
    graph = QonnxGraph()
    model = loading.from_proto(graph.model(graph.add("Relu", "x"), (2,)))
    assert runnable_form(model) is model


def test_what_has_no_conversion_stays_and_is_named():
    graph = QonnxGraph()
    bits = graph.add("ReduceMax", "x")
    named = [graph.constant(np.float32(each)) for each in (0.5, 0)]
    y = graph.add("Quant", "x", *named, bits, domain=DOMAIN, signed=1, narrow=0, name="rounds")
    proto = graph.model(graph.quant(y, 1, 0, 2, signed=0), (2, 2))
    result = from_qonnx(proto)
    assert dict(result.left) == {"rounds": "its number of bits is computed in the graph"}
    assert result.note.endswith("; rounds stayed")
    with pytest.raises(ModelError, match=r"1 of its nodes cannot .* 'rounds' .Quant.: its num"):
        runnable_form(loading.from_proto(proto))


def test_scales_that_the_graph_computes():
    graph = QonnxGraph()
    scale = graph.add("ReduceMax", "x")
    others = [graph.constant(np.float32(each)) for each in (0, 4)]
    y = graph.add("Quant", "x", scale, *others, domain=DOMAIN, signed=1, narrow=0)
    proto = graph.model(y, (2, 5))
    x = np.random.default_rng(0).normal(0, 9, (2, 5)).astype(np.float32)
    computed = _onnxruntime(from_qonnx(proto).proto, x)
    np.testing.assert_array_equal(computed, np.clip(np.rint(x / x.max()), -8, 7) * x.max())


@pytest.mark.parametrize(("exponent", "mantissa", "dtype"), [
    (8, 7, ml_dtypes.bfloat16), (5, 10, np.float16), (5, 2, ml_dtypes.float8_e5m2),
])  # fmt: skip
def test_formats_of_ml_dtypes(exponent, mantissa, dtype):
    """All powers of two, their neighbours and numbers beyond the format."""
    graph, bias = QonnxGraph(), 2 ** (exponent - 1) - 1
    info = ml_dtypes.finfo(dtype)
    parameters = (1, exponent, mantissa, bias, float(info.max))
    named = [graph.constant(np.float32(each)) for each in parameters]
    y = graph.add("FloatQuant", "x", *named, domain=DOMAIN, rounding_mode="ROUND", has_inf=1,
                  has_nan=1, has_subnormal=1, saturation=1)  # fmt: skip
    powers = np.exp2(np.arange(-149, 128, dtype=np.float64)).astype(np.float32)
    random = np.random.default_rng(0).integers(0, 0x7F800000, 4000, np.uint32).view(np.float32)
    x = np.concatenate([powers, np.nextafter(powers, 0), 1.5 * powers[:-1], random])
    x = np.concatenate([x, -x, [0]]).astype(np.float32)
    computed = _onnxruntime(from_qonnx(graph.model(y, x.shape)).proto, x)
    most = np.float32(info.max)
    np.testing.assert_array_equal(
        computed, np.clip(x, -most, most).astype(dtype).astype(np.float32)
    )


def _small() -> tuple[onnx.ModelProto, np.ndarray]:
    """A convolution whose inputs, weights and thresholds are QONNX's."""
    random, graph = np.random.default_rng(0), QonnxGraph()
    x = graph.quant("x", 0.25, 0, 4, name="rounded")
    weights = graph.constant(random.normal(0, 1, (4, 3, 3, 3)).astype(np.float32))
    w = graph.quant(weights, 0.25, 0, 3, narrow=1, name="weights")
    y = graph.add("Conv", x, w, name="conv")
    steps = np.sort(random.normal(0, 4, (4, 3)).astype(np.float32), axis=1)
    y = graph.add("MultiThreshold", y, graph.constant(steps), domain=DOMAIN, out_dtype="UINT2",
                  name="steps")  # fmt: skip
    parameters = [graph.constant(np.float32(each)) for each in (1, 0, 2, 1)]
    y = graph.add("Trunc", y, *parameters, domain=DOMAIN, rounding_mode="FLOOR", name="half")
    return graph.model(y, (2, 3, 6, 6)), random.normal(0, 1, (2, 3, 6, 6)).astype(np.float32)


NODES = {"rounded", "weights", "conv", "steps", "half"}


def test_commands_that_run_onnxruntime_have_the_nodes_of_the_model(tmp_path):
    proto, _ = _small()
    path = tmp_path / "small.onnx"
    onnx.save(proto, path)
    told = "onnxruntime has no operators of QONNX: 2 of QONNX's nodes became QuantizeLinear"
    for result in (
        tracer.profile(path, runs=2, warmup=0, in_process=True, split=9),
        tracer.interpret(path, against="ort", runs=1, in_process=True),
        tracer.count(path, run=True, in_process=True),
        tracer.fusions(path, in_process=True),
    ):
        nodes = result.nodes
        names = nodes["node"] if hasattr(nodes, "columns") else [each.node for each in nodes]
        assert set(names) == NODES
        assert any(note.startswith(told) for note in result.notes)


def test_interpret_agrees_with_onnxruntime():
    trace = tracer.interpret(_small()[0], against="ort", runs=1, in_process=True)
    assert (trace.nodes.set_index("node").loc[list(NODES), "difference_max"] < 1e-6).all()


def test_fusions_are_confirmed_by_values():
    fusions = tracer.fusions(_small()[0], in_process=True)
    parts = {row.kernel: row for row in fusions.kernels if row.nodes == ("steps",)}
    assert len(parts) > 2
    assert {row.role for row in parts.values()} == {"part"}
    assert not [row for row in fusions.kernels if row.verdict == "contradicted"]
    assert {row.node for row in fusions.nodes} == NODES


@pytest.mark.nightly
def test_compare_and_tune(tmp_path):
    path = tmp_path / "small.onnx"
    onnx.save(_small()[0], path)
    settings = SideSettings(sessions=2, precision=0.9)
    sides = [f"{path}@ort:none", str(path), f"{path}@interpreter"]
    comparison = tracer.compare(sides, settings=settings, tolerance=Tolerance(), in_process=True)
    assert [numbers.differ for numbers in comparison.numbers] == [0, 0]
    tuned = tracer.tune(path, max_seconds=0.5, only=("threads",), in_process=True)
    assert tuned.trials


def test_a_quantised_model_is_not_quantised_again(tmp_path):
    proto, x = _small()
    np.savez(tmp_path / "data.npz", x=x)
    with pytest.raises(ModelError, match="quantised already: node 'rounded' is a Quant"):
        tracer.quantize(proto, calibrate=tmp_path / "data.npz", in_process=True)
