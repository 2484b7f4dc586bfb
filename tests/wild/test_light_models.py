"""The nine graphs of the onnx package, whose weights are constants of the graph."""

import numpy as np
import onnx
import pytest

import tracer
from analyzers.fusions.confirmation import CONTRADICTED
from tests.conformance.suite import light_models

SMALL = ("inception_v1", "shufflenet", "squeezenet")
"""The others have the same operators, and hundreds of MB or of nodes: minutes. What all compute is
in tests/conformance."""

light_model = pytest.mark.parametrize("path", light_models(), ids=lambda path: path.stem)
small_model = pytest.mark.parametrize(
    "path",
    [path for path in light_models() if path.stem.removeprefix("light_") in SMALL],
    ids=lambda path: path.stem,
)


@light_model
def test_macs_are_those_that_torch_counts(path):
    counted = pytest.importorskip("tests.wild.torch_count").counted
    model = onnx.load(path)
    weights = {weight.name for weight in model.graph.initializer}
    feeds = {
        value.name: np.ones([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
        if value.name not in weights
    }
    assert tracer.count(path).nodes["macs"].sum() == counted(model, feeds)


@small_model
def test_a_profile_times_every_node(path):
    """Without optimisation: equal weights let onnxruntime compute some convolutions once."""
    once = {"runs": 1, "warmup": 0, "min_time": 0}
    rows = tracer.profile(path, **once, confirm=False, optimization="none").nodes
    computing = rows[rows["op_type"] != "ConstantOfShape"]
    stored = [node for node in onnx.load(path).graph.node if node.op_type != "ConstantOfShape"]
    assert sorted(computing["op_type"]) == sorted(node.op_type for node in stored)
    assert (computing["calls"] == 1).all()
    assert (computing.loc[computing["op_type"] == "Conv", "time_us_raw"] > 0).all()


@small_model
def test_every_node_agrees_with_onnxruntime(path):
    values = tracer.interpret(path, runs=1, warmup=0, against="ort").runs[0].values
    assert len(values) == len(onnx.load(path).graph.node)
    assert not [each.node for each in values if each.difference.fault or each.own.fault]


@small_model
def test_every_node_has_a_kernel_or_a_fate_and_no_kernel_is_contradicted(path):
    found = tracer.fusions(path)
    assert CONTRADICTED not in {row.verdict for row in found.kernels}
    told = {node for row in found.kernels for node in row.nodes} | {row.node for row in found.nodes}
    assert len(told) == len(onnx.load(path).graph.node)
