"""Profiles on OpenVINO's provider, in an environment of its own: it replaces onnxruntime."""

import numpy as np
import onnxruntime
import pytest

import tracer
import tracer.cli
from tests.graphs import divided
from tracer.analyzers.grouping import placements, unplaced
from tracer.analyzers.timing import coverage
from tracer.executors.onnxruntime import kernel_nodes

OPENVINO = "OpenVINOExecutionProvider"
if OPENVINO not in onnxruntime.get_available_providers():
    pytest.skip("onnxruntime-openvino is not installed", allow_module_level=True)

OPTIONS = {"device_type": "CPU"}
MODELS = {
    "lenet": "models/lenet/lenet.onnx",
    "resnet20": "models/resnet_cifar/resnet20.onnx",
    "transformer": "models/transformer/transformer.onnx",
}


def profiled(model, **options):
    return tracer.profile(
        model, provider="openvino", provider_options=OPTIONS, threads=1, in_process=True, **options
    )


@pytest.mark.parametrize("path", MODELS.values(), ids=MODELS)
def test_a_model_that_it_takes_whole_is_one_row_with_all_nodes(path):
    trace = profiled(path, runs=20)
    (run,) = trace.runs
    (kernel,) = run.kernels
    assert kernel.is_compiled and kernel.calls == 1
    (row,) = trace.nodes.index[trace.nodes["time_us"].notna()]
    assert (trace.nodes["kernels"] == kernel.name).all()
    assert (trace.nodes["timed_in"].drop(row) == trace.nodes.loc[row, "node"]).all()
    assert 0.2 < coverage(run, trace.nodes) <= 1.0001
    (placed,) = placements(run, trace.nodes)
    assert placed.subgraphs == (len(trace.nodes),) and unplaced(trace.nodes) == 0
    counted = tracer.count(path).nodes
    assert trace.nodes["macs"].sum() == counted["macs"].sum()


@pytest.mark.parametrize("runs", [1, 60])
def test_subgraphs_and_nodes_of_the_cpu_have_rows(runs):
    trace = profiled(divided(), runs=runs)
    kernels = trace.runs[0].kernels
    assert [len(kernel.parts) for kernel in kernels] == [2, 0, 5]
    timed = trace.nodes[trace.nodes["time_us"].notna()]
    assert timed["op_type"].tolist() == ["Conv", "IsNaN", "Conv"]
    nodes = {each.provider: sum(each.nodes.values()) for each in placements(trace.runs[0], timed)}
    assert nodes[OPENVINO] == 2


def test_the_nodes_derived_from_events_are_those_that_it_tells(monkeypatch):
    told = profiled(divided(), runs=1).runs[0].kernels
    monkeypatch.setattr(kernel_nodes, "recorded_parts", lambda session: ())
    derived = profiled(divided(), runs=1).runs[0].kernels
    assert [kernel.parts for kernel in derived] == [kernel.parts for kernel in told]


def test_without_optimisation_each_node_is_in_the_subgraph_by_itself():
    trace = profiled(MODELS["resnet20"], runs=2, optimization="none")
    (kernel,) = trace.runs[0].kernels
    assert sorted(part.node for part in kernel.parts) == sorted(trace.nodes["node"])


def test_a_language_model_is_divided_where_a_node_is_not_supported():
    trace = profiled("models/gpt/gpt.onnx", runs=2)
    by_provider = {each.provider: each for each in placements(trace.runs[0], trace.nodes)}
    on_cpu = by_provider["CPUExecutionProvider"]
    assert len(by_provider[OPENVINO].subgraphs) == sum(on_cpu.nodes.values()) + 1
    nodes = sum(sum(each.nodes.values()) for each in by_provider.values())
    assert nodes + unplaced(trace.nodes) == len(trace.nodes)


def test_its_options_reach_it(capfd):
    line = ["profile", MODELS["lenet"], "--provider", "openvino", "--runs", "2", "--notes"]
    assert tracer.cli.main([*line, "--provider-option", "abacus=1"]) == 3
    assert "abacus" in capfd.readouterr().err


def test_a_device_that_is_missing_leaves_all_to_the_cpu_and_is_told():
    """OpenVINO refuses the device without an error, and onnxruntime goes on."""
    settings = {"provider": "ov", "provider_options": {"device_type": "ABACUS"}, "threads": 1}
    trace = tracer.profile(MODELS["lenet"], runs=2, in_process=True, **settings)
    assert any(f"{OPENVINO} ran no node" in note for note in trace.notes)
    assert {kernel.provider for kernel in trace.runs[0].kernels} == {"CPUExecutionProvider"}
    alone = tracer.profile(MODELS["lenet"], runs=2, threads=1, confirm=False, in_process=True)
    assert trace.nodes["kernels"].notna().tolist() == alone.nodes["kernels"].notna().tolist()
    assert trace.nodes["timed_in"].tolist() == alone.nodes["timed_in"].tolist()


def test_compare_has_the_rows_of_the_cpu_beside_it(capfd):
    path = MODELS["lenet"]
    line = ["compare", f"{path}@ort:openvino", path, "--provider-option", "device_type=CPU"]
    assert tracer.cli.main([*line, "--threads", "1", "--sessions", "2", "--precision", "50%"]) == 0
    out = capfd.readouterr().out
    assert "lenet.onnx@ort:openvino" in out and "every one of 12 layers is within tolerance" in out
    assert f"Rows of B in place of {OPENVINO}_OpenVINO-EP-subgraph_0" in out
    assert "node_Conv_23" in out.partition("Rows of B")[2]


def test_replayed_and_split_kernels_are_left_out_or_run_alone():
    trace = profiled(MODELS["lenet"], runs=3, replay=1, split=1)
    assert trace.nodes["time_us_replayed"].isna().all()
    assert np.nansum(trace.nodes["time_us_split"]) == pytest.approx(trace.nodes["time_us"].sum())


def test_the_command_says_who_ran_what(capfd):
    line = ["profile", MODELS["lenet"], "--provider", "openvino", "--no-roofline"]
    assert tracer.cli.main([*line, "--provider-option", "device_type=CPU", "--runs", "3"]) == 0
    assert "openvino: 100.0% of the time, 12 nodes in 1 compiled subgraph" in capfd.readouterr().out
