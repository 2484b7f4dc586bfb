"""Times on the device, in the two formats of kernel events that onnxruntime publishes.

The host µs and the device µs of the fixtures, in the two runs after the warm-up:

    Memcpy_0  9, 11  and  2, 2        conv1  21, 19  and  30 + 10, 30 + 12
    conv2    15, 17  and  50, 54      relu    5,  7  and  4, 6
    Memcpy_1 44, 40  and  4, 6        erf    30, 32  on the CPU
"""

import json
from pathlib import Path

import numpy as np
import pytest

import tracer
import tracer.cli
from tests.graphs import parse, residual
from tracer.api.results import load_result
from tracer.executors.onnxruntime import calibration, profile_events

FOLDER = Path("tests/fixtures/profiles")
FOLLOWING, WITH_PARENTS, BLOCKING = (
    str(FOLDER / f"cuda_{name}.json")
    for name in ("kernels_after_nodes", "kernels_with_parents", "launch_blocking")
)
NODES = ["Memcpy_0", "conv1", "conv2", "relu", "Memcpy_1", "erf"]
LAUNCHES = [10, 20, 16, 6, 42, 31]
DEVICE = [2, (40 + 42) / 2, 52, 5, 5, np.nan]
MODEL = """<ir_version: 9, opset_import: ["" : 18]>
agraph (float[1,3,8,8] x, float[4,3,1,1] v, float[4,4,1,1] w) => (float[1,4,8,8] y) {
    [conv1] a = Conv (x, v)
    [conv2] b = Conv (a, w)
    [relu] c = Relu (b)
    [erf] y = Erf (c)
}"""


@pytest.mark.parametrize("path", [FOLLOWING, WITH_PARENTS])
def test_launches_and_times_on_the_device_are_columns_of_their_own(path):
    nodes = load_result(path).nodes.set_index("node")
    assert nodes.index.tolist() == NODES
    assert nodes["time_us"].tolist() == LAUNCHES
    assert nodes["time_us_device"].tolist() == pytest.approx(DEVICE, nan_ok=True)


@pytest.mark.parametrize("path", [FOLLOWING, WITH_PARENTS])
def test_the_notes_say_which_times_are_which(path):
    text = " ".join(load_result(path).notes)
    assert "CUDAExecutionProvider runs asynchronously" in text
    assert "unless CUDA_LAUNCH_BLOCKING=1" in text
    assert "105.0 µs per run on the device itself" in text  # 2 + 41 + 52 + 5 + 5


def test_what_no_node_launched_is_told_and_belongs_to_none():
    """Two copies of 8 µs that model_run launched, and a kernel of 25 µs without a parent.

    The 700 µs before the first run are of the start of the session.
    """
    assert any(note.startswith("41.0 µs on the device") for note in load_result(WITH_PARENTS).notes)
    assert not any("belong to no node" in note for note in load_result(FOLLOWING).notes)


def test_without_events_of_the_device_its_time_is_not_known():
    trace = load_result(BLOCKING)
    assert trace.nodes["time_us"].tolist() == [12, 61, 68, 11, 47, 31]  # launch and kernel
    assert trace.nodes["time_us_device"].isna().all()
    text = " ".join(trace.notes)
    assert "the time on the device was not recorded" in text
    assert "unless CUDA_LAUNCH_BLOCKING=1" in text


@pytest.mark.parametrize(("path", "rated"), [(WITH_PARENTS, True), (BLOCKING, False)])
def test_rates_are_those_of_the_device(path, rated, tmp_path):
    """A launch says nothing of the arithmetic that it starts; erf ran on the CPU."""
    (tmp_path / "m.onnx").write_bytes(parse(MODEL).SerializeToString())
    nodes = load_result(path, tmp_path / "m.onnx").nodes.set_index("node")
    rate = nodes["gflops_per_s"]
    assert (
        rate["conv2"] == pytest.approx(2 * 4 * 4 * 64 / 52 / 1e3)
        if rated
        else (np.isnan(rate["conv2"]))
    )
    assert rate["erf"] == pytest.approx(nodes["flops"]["erf"] / 31 / 1e3)


def test_the_lines_and_the_columns_are_shown(capsys):
    assert tracer.cli.main(["report", WITH_PARENTS]) == 0
    out = capsys.readouterr().out
    assert "device µs" in out
    assert "cuda: 33.6% of the time on the host, 98.00 µs on the device, 3 nodes (2 Conv, 1" in out
    assert "cpu: 24.8% of the time, 1 node (1 Erf)" in out
    assert "copies between providers: 41.6% of the time, 1 MemcpyFromHost, 1 MemcpyToHost" in out


def test_they_are_kept_in_a_trace(tmp_path):
    trace = load_result(WITH_PARENTS)
    again = tracer.load(trace.save(tmp_path / "r.trace"))
    assert again.runs[0].kernels == trace.runs[0].kernels
    assert again.nodes["time_us_device"].tolist() == pytest.approx(DEVICE, nan_ok=True)


def test_a_profile_of_this_machine_has_them_too(monkeypatch):
    """A run on the CPU, whose profile gets a kernel of 7 µs after every node but the last."""
    read = profile_events.read
    monkeypatch.setattr(calibration, "measure", lambda threads: calibration.Bias(0, 0))

    def on_cuda(path, labels):
        events = []
        for event in json.loads(path.read_text()):
            events.append(event)
            if event["cat"] == "Node" and event["args"]["op_name"] != "Gemm":
                event["args"]["provider"] = "CUDAExecutionProvider"
                parent = {"op_name": event["args"]["op_name"], "parent_name": event["name"]}
                events.append(event | {"cat": "Kernel", "name": "k", "dur": 7, "args": parent})
        path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
        return read(path, labels)

    monkeypatch.setattr(profile_events, "read", on_cuda)
    trace = tracer.profile(residual(), runs=6, threads=1, optimization="none", in_process=True)
    timed = trace.nodes.set_index("op_type")["time_us_device"]
    assert timed.drop("Gemm").tolist() == [7] * (len(timed) - 1)
    assert np.isnan(timed["Gemm"])
    assert any("have the times of their launch" in note for note in trace.notes)


def test_what_a_compiled_subgraph_launched_is_its_own(tmp_path):
    """Its name in the file has a number that its row leaves out."""
    name = "TensorrtExecutionProvider_TRTKernel_graph_g_116_1_0_kernel_time"
    about = {"op_name": "TRTKernel_graph_g_116_1", "provider": "TensorrtExecutionProvider"}
    parent = {"op_name": about["op_name"], "parent_name": name}
    event = {"pid": 1, "tid": 1, "ph": "X"}
    events = [
        event | {"cat": "Session", "name": "model_run", "ts": 10, "dur": 90, "args": {}},
        event | {"cat": "Node", "name": name, "ts": 20, "dur": 30, "args": about},
        event | {"cat": "Kernel", "name": "trt_conv", "ts": 40, "dur": 44, "args": parent},
    ]
    (tmp_path / "p.json").write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    (row,) = load_result(tmp_path / "p.json").nodes.to_dict("records")
    assert row["node"] == "TensorrtExecutionProvider_TRTKernel_graph_g_116_0"
    assert (row["time_us"], row["time_us_device"]) == (30, 44)
