"""OpenVINO as an executor: what it computes, which nodes its layers are, and its releases."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tracer
import tracer.cli
from tests.graphs import residual
from tests.releases import plant_release
from tracer.api.compare import SideSettings
from tracer.errors import InputError, ModelError
from tracer.executors import registry
from tracer.graph import loading
from tracer.inputs.feedset import FeedSet
from tracer.support.tolerance import Tolerance

openvino = pytest.importorskip("openvino")

LENET = "models/lenet/lenet.onnx"
QUICK = SideSettings(threads=1, sessions=2, precision=1.0)
FAST = {"executor": "openvino", "runs": 4, "warmup": 1, "threads": 1}
OTHER = "1.0.7"
"""A release that never was."""


@pytest.fixture(scope="module")
def lenet():
    return tracer.profile(LENET, **FAST)


def test_every_tensor_is_that_of_onnxruntime():
    proto = residual()
    outputs = [value.name for value in proto.graph.output]
    tensors = [name for node in proto.graph.node for name in node.output]
    more = [name for name in tensors if name not in outputs]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
    (value,) = proto.graph.input
    shape = [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
    feeds = {value.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    expected = dict(zip([*outputs, *more], session.run(None, feeds), strict=True))
    executor = registry.find_tensors("openvino")
    found = executor.tensors(
        loading.from_proto(residual()), FeedSet(feeds, 2), executor.settings(threads=1)
    )
    assert found.by_name.keys() == expected.keys()
    for name, values in found.by_name.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-3, atol=1e-4, err_msg=name)
    for name, values in zip(outputs, found.outputs, strict=True):
        np.testing.assert_allclose(values, expected[name], rtol=1e-3, atol=1e-4)


def test_a_layer_has_the_nodes_that_openvino_fused(lenet):
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(LENET, "CPU", config)
    rows = lenet.nodes.set_index("node")
    hosts = rows["timed_in"].fillna(rows.index.to_series())
    keys = set(rows.index)
    fused = 0
    for layer in compiled.get_runtime_model().get_ordered_ops():
        names = layer.get_rt_info()["originalLayersNames"].value.split(",")
        own = [name for name in (each.split("/")[0] for each in names) if name in keys]
        assert len({hosts[key] for key in own}) <= 1, own
        fused += len(own) > 1
    assert fused >= 4  # the Relus
    assert rows.loc[hosts[rows["macs"] > 0], "time_us"].notna().all()


def test_a_node_that_no_layer_names_is_in_the_layer_behind_it():
    trace = tracer.profile("models/transformer/transformer.onnx", **FAST)
    rows = trace.nodes.set_index("node")
    hosts = rows["timed_in"].fillna(rows.index.to_series())
    assert rows.loc[hosts[rows["macs"] > 0], "time_us"].notna().all()
    products = rows[rows["op_type"] == "MatMul"].index
    assert hosts["node_linear"] in products  # its bias was fused, which keeps the name of the Add
    assert not rows["kernels"].dropna().str.contains(r"Multiply_\d").any()


def test_a_layer_has_the_same_share_of_every_recorded_run(lenet):
    (run,) = lenet.runs
    assert run.samples.shape == (len(run.instrumented_us), len(run.kernels))
    shares = run.samples / run.instrumented_us[:, None]
    np.testing.assert_allclose(shares, np.broadcast_to(shares[0], shares.shape))
    assert (run.samples.sum(axis=1) < run.instrumented_us + len(run.kernels)).all()
    assert lenet.environment.version("openvino").startswith(openvino.__version__[:6])
    assert any("sizes of the inputs are open" in note for note in lenet.notes)


@pytest.mark.nightly
def test_a_side_runs_in_its_release(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plant_release(OTHER, package=openvino)
    sides = [LENET, f"{LENET}@openvino=={OTHER}"]
    comparison = tracer.compare(sides, tolerance=Tolerance(), settings=QUICK)
    assert comparison.passed
    assert [side.run.executor for side in comparison.sides] == ["onnxruntime", "openvino"]
    assert comparison.sides[1].trace.environment.version("openvino") == OTHER
    both = comparison.layers[comparison.layers["on"] == "AB"]
    assert {"Conv+Relu", "Gemm+Relu", "MaxPool"} <= set(both["op"])


def test_what_openvino_lacks_is_named():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    node = helper.make_node("Foo", ["x"], ["y"], domain="my.own", name="n")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.own", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)
    with pytest.raises(ModelError, match=r"No conversion rule found for operations: my.own.Foo"):
        tracer.profile(model, **FAST)


def test_inputs_that_do_not_fit_are_named():
    x, y, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [n]) for n in "abc")
    node = helper.make_node("Add", ["a", "b"], ["c"], name="sum")
    model = helper.make_model(
        helper.make_graph([node], "g", [x, y], [z]), opset_imports=[helper.make_opsetid("", 17)]
    )
    with pytest.raises(InputError, match="OpenVINO cannot run on these inputs: "):
        tracer.profile(model, dims={"a": 2, "b": 3}, **FAST)


def test_the_command_profiles_and_its_trace_is_read(tmp_path, capfd):
    words = [LENET, "--executor", "openvino", "--runs", "3", "--threads", "1", "--no-roofline"]
    trace = tmp_path / "net.trace"
    assert tracer.cli.main(["profile", *words, "-o", str(trace)]) == 0
    capfd.readouterr()
    assert tracer.cli.main(["report", str(trace), "--json"]) == 0
    (run,) = json.loads(capfd.readouterr().out)["runs"]
    assert run["executor"] == "openvino"
    assert tracer.cli.main(["profile", *words, "--optimization", "none"]) == 2
    assert "'openvino' has no setting optimization" in capfd.readouterr().err
