"""The time of a kernel stands in the row of the node that does its work."""

import numpy as np
import pandas as pd
import pytest

import tracer
from tests.graphs import parse
from tracer.analyzers.attribution import SERVING, main_first
from tracer.analyzers.grouping import by_node, grouped, served
from tracer.analyzers.timing import coverage
from tracer.graph.loading import open_model

MODELS = {
    "lenet": "models/lenet/lenet.int8.onnx",
    "resnet20": "models/resnet_cifar/resnet20.int8.onnx",
    "transformer": "models/transformer/transformer.int8.onnx",
}
SUMMING = ("Conv", "Gemm", "MatMul")


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def trace(request):
    return tracer.profile(request.param, runs=3, warmup=0, threads=1, confirm=False)


@pytest.mark.one_in(3)
def test_every_node_that_sums_products_has_the_time_of_its_kernel(trace):
    nodes = trace.nodes
    summing = nodes[nodes["op_type"].isin(SUMMING)]
    assert len(summing) == (nodes["macs"] > 0).sum()  # none is left out
    assert summing["time_us"].notna().all()
    assert summing["timed_in"].isna().all()


def test_the_time_of_a_kernel_stands_once(trace):
    (run,) = trace.runs
    timed = trace.nodes[trace.nodes["time_us"].notna()]
    named = timed["kernels"].str.split("; ").explode()
    assert sorted(named) == sorted({kernel.name for kernel in run.kernels})
    assert 0 < timed["time_share"].sum() <= 1 + 1e-9  # a time that is only a bound has no share
    assert coverage(run, trace.nodes) > 0


def test_a_node_without_a_time_names_the_row_that_has_it(trace):
    rows = trace.nodes.set_index("node")
    fused = rows[rows["timed_in"].notna()]
    hosts = rows.loc[fused["timed_in"]]
    assert len(fused) > 0
    assert fused["time_us"].isna().all()
    assert hosts["time_us"].notna().all()
    assert list(hosts["kernels"]) == list(fused["kernels"])


def test_the_row_of_a_kernel_is_called_after_its_main_node(trace):
    kernels = by_node(trace.nodes)
    timed = trace.nodes[trace.nodes["time_us"].notna()]
    assert set(timed["node"]) <= set(kernels["node"])
    fused = kernels[(kernels["nodes"] > 1) & (kernels["macs"] > 0)]
    assert fused["op_type"].str.split("+").str[0].isin(SUMMING).all()
    assert not fused["op_type"].str.contains("Quantize").any()
    assert "timed_in" not in kernels  # a row holds its own time


def test_without_macs_a_conversion_is_not_the_main_node():
    model = open_model(MODELS["lenet"])
    group = ("relu_DequantizeLinear", "node_max_pool2d", "max_pool2d_QuantizeLinear")
    for amount in (0, pd.NA):
        work = pd.DataFrame(amount, group, ["macs", "flops", "bytes_written"], dtype="Int64")
        assert main_first(model, [group, ()], work) == ((group[1], group[0], group[2]), ())


TRANSPOSED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N,3,8,16] x) => (float[N,8,1,16] y) {
  t = Transpose <perm = [0,2,1,3]> (x)
  q = Mul (t, t)
  y = ReduceSum <keepdims = 1> (q, axes)
}
"""


def test_without_macs_the_node_that_computes_is_the_main_node():
    model = open_model(parse(TRANSPOSED, axes=np.array([2])))
    counted = tracer.count(model).nodes.set_index("node")
    group = tuple(node.key for node in model.nodes[:2])
    assert main_first(model, [group], counted)[0] == (group[1], group[0])


@pytest.mark.one_in(3)
def test_a_comparison_finds_the_uncertainty_of_a_row_that_has_a_time(trace, tmp_path):
    file = str(trace.save(tmp_path / "r.trace"))
    side = tracer.compare([file, file]).sides[0]
    timed = np.isfinite(side.time_us)
    assert timed.sum() == trace.nodes["time_us"].notna().sum()
    assert side.systematic_us[timed].any()
    assert not side.systematic_us[~timed].any()


def test_constants_and_conversions_are_in_the_row_of_the_node_that_they_serve():
    counted = tracer.count(MODELS["lenet"])
    assert counted.nodes["op_type"].isin(SERVING).sum() > 10
    serves = served(counted.model.topology)
    assert serves["relu_DequantizeLinear"] == "node_max_pool2d"
    assert serves["max_pool2d_QuantizeLinear"] == "node_max_pool2d"
    folded = grouped(counted.nodes, "node", serves=serves)
    assert folded["nodes"].sum() == len(counted.nodes)
    assert folded["macs"].sum() == counted.nodes["macs"].sum()
    assert folded["flops"].sum() == counted.nodes["flops"].sum()
    assert set(folded["node"]) <= set(counted.nodes["node"])
    rows = folded.set_index("node")["op_type"]
    assert rows["node_max_pool2d"] == "MaxPool"
    assert rows.isin(SERVING).sum() <= 1  # of the output


def test_a_conversion_with_a_kernel_keeps_its_row(trace):
    timed = trace.nodes[trace.nodes["time_us"].notna()]
    folded = grouped(trace.nodes, "node", serves=served(trace.model.topology))
    assert folded["time_us"].notna().sum() == len(timed)
    assert folded["time_us"].sum() == pytest.approx(timed["time_us"].sum())
