"""The nine graphs of the onnx package, whose weights are constants of the graph."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer
from tests.conformance.suite import light_models
from tracer.analyzers.fusions.confirmation import CONTRADICTED
from tracer.quantization.options import QuantizationOptions

pytestmark = pytest.mark.nightly

LARGE = ("densenet121", "vgg19")
"""They have the operators of Inception and AlexNet, and 1,746 nodes or 144 million weights, which
take a minute. `python -m tests.wild` gives all nine to every command."""
QUANTISED = ("shufflenet", "squeezenet")
"""Those that are quantised and measured within seconds."""

ONCE = {"runs": 1, "warmup": 0}


def _each(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def _name(path):
    return path.stem.removeprefix("light_")


light_model = _each(light_models())
smaller_model = _each([path for path in light_models() if _name(path) not in LARGE])
quantised_model = _each([path for path in light_models() if _name(path) in QUANTISED])


def _feeds(path):
    model = onnx.load(path)
    weights = {weight.name for weight in model.graph.initializer}
    return {
        value.name: np.ones([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
        if value.name not in weights
    }


@light_model
def test_macs_are_those_that_torch_counts(path):
    counted = pytest.importorskip("tests.wild.torch_count").counted
    assert tracer.count(path).nodes["macs"].sum() == counted(onnx.load(path), _feeds(path))


@smaller_model
def test_a_profile_times_every_node(path):
    """Without optimisation: equal weights let onnxruntime compute some convolutions once."""
    rows = tracer.profile(path, **ONCE, min_time=0, confirm=False, optimization="none").nodes
    computing = rows[rows["op_type"] != "ConstantOfShape"]
    stored = [node for node in onnx.load(path).graph.node if node.op_type != "ConstantOfShape"]
    assert sorted(computing["op_type"]) == sorted(node.op_type for node in stored)
    assert (computing["calls"] == 1).all()
    assert (computing.loc[computing["op_type"] == "Conv", "time_us_raw"] > 0).all()


@smaller_model
def test_every_node_agrees_with_onnxruntime(path):
    values = tracer.interpret(path, **ONCE, against="ort").runs[0].values
    assert len(values) == len(onnx.load(path).graph.node)
    assert not [each.node for each in values if each.difference.fault or each.own.fault]


@smaller_model
def test_every_node_has_a_kernel_or_a_fate_and_no_kernel_is_contradicted(path):
    found = tracer.fusions(path)
    assert CONTRADICTED not in {row.verdict for row in found.kernels}
    told = {node for row in found.kernels for node in row.nodes} | {row.node for row in found.nodes}
    assert len(told) == len(onnx.load(path).graph.node)


@quantised_model
def test_a_quantised_graph_runs_in_onnxruntime_as_in_narrow_accumulators_that_suffice(
    path, tmp_path
):
    feeds, target = _feeds(path), tmp_path / "int8.onnx"
    np.savez(tmp_path / "x.npz", **feeds)
    options = QuantizationOptions(exclude=("Softmax",))  # 8 bits make zeros of a thousandth each
    tracer.quantize(path, tmp_path / "x.npz", output=target, options=options)
    expected = ort.InferenceSession(target).run(None, feeds)
    computed = []
    wide = tracer.interpret(
        target, accumulator=32, inputs=tmp_path / "x.npz", receive=lambda _, y: computed.extend(y)
    )
    assert wide.nodes["overflow_outputs"].sum() == 0
    for mine, theirs in zip(computed, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=0.02 * np.abs(theirs).max())
