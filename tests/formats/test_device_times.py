"""Kernels that torch's profiler recorded, joined to the nodes of onnxruntime's own profile."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tracer
from tests.graphs import residual
from tracer.errors import ModelError
from tracer.executors.onnxruntime import calibration, device_times, feeding, profile_events
from tracer.executors.onnxruntime.profile_events import Events, Labels
from tracer.executors.settings import OrtSettings
from tracer.records import environment

ZERO_NS = 1_790_000_000_000_000_000
BASE_NS = 1_789_999_999_000_000_000  # Kineto's own zero, a second earlier
RUN, EXECUTE, CONV, LOOP, ADD = 0, 1, 2, 3, 4
EVENTS = [  # ts, dur (µs of onnxruntime's file), thread, label
    (100, 400, 7, RUN), (110, 380, 7, EXECUTE),
    (120, 30, 7, CONV), (160, 200, 7, LOOP),
    (170, 80, 7, EXECUTE), (180, 20, 7, ADD), (210, 20, 7, ADD),
    (1000, 300, 7, RUN), (1010, 280, 7, EXECUTE), (1020, 30, 7, CONV), (1060, 150, 7, LOOP),
]  # fmt: skip
MARKS = [(90, 430), (990, 330)]  # begin and length, µs after ZERO_NS
CALLS = [  # µs after ZERO_NS, thread, µs of its kernels
    (125.2, 7, [10.0, 2.5]),  # conv
    (151.9, 7, [1.0]),  # conv, whose 30 µs may be 31.99
    (185.0, 7, [4.0]), (215.5, 7, [8.0]),  # the two calls of add, in the loop
    (300.0, 7, [16.0]),  # the loop, outside of its body
    (499.0, 7, [32.0]),  # after the nodes: a copy of an output
    (1030.0, 7, [64.0]),  # conv in the second run
    (1070.0, 9, [128.0]),  # a thread without nodes, for the loop
]  # fmt: skip


def _events(rows=EVENTS):
    return Events(*np.array(rows).T)


def _kineto(path, calls=CALLS, marks=MARKS, extra=(), late_us=0.0):
    """A file as Kineto writes it: a call and its work have one correlation, and its own ids."""
    events = [{"ph": "M", "name": "process_name", "pid": "Spans", "tid": "", "args": {}}, *extra]

    def us(at):
        return round(at + late_us + (ZERO_NS - BASE_NS) / 1e3, 3)

    for begin, length in marks:
        where = {"ph": "X", "name": "tracer run", "ts": us(begin), "dur": length}
        events.append(where | {"cat": "user_annotation", "pid": 1, "tid": 7, "args": {}})
        events.append(where | {"cat": "gpu_user_annotation", "pid": 0, "tid": 0, "args": {}})
    correlation = 40
    for at, tid, kernels in calls:
        for kernel in kernels:
            correlation += 1
            args = {"External id": 3, "cbid": 211, "correlation": correlation}
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1,
                           "tid": tid, "ts": us(at), "dur": 3.5, "args": args})  # fmt: skip
            events.append({"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7,
                           "ts": us(at + 50), "dur": kernel,
                           "args": {"device": 0, "stream": 7, "correlation": correlation,
                                    "grid": [1, 2, 3]}})  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS,
                                "traceEvents": events}))  # fmt: skip
    return path


def test_the_innermost_node_around_a_call_launched_its_kernels(tmp_path):
    launches = device_times.read_launches(_kineto(tmp_path / "k.json"))
    table, note = device_times.join(_events(), ZERO_NS, launches, 3)
    assert note is None
    assert table.device_us.tolist() == [[13.5, 16, 12], [64, 128, 0]]
    assert table.apart_us == 32
    assert table.calls.tolist() == [[1, 1, 2], [1, 1, 0]]


def test_work_whose_call_was_not_recorded_belongs_to_no_node(tmp_path):
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 5.0,
            "dur": 6.25, "args": {"correlation": 9, "bytes": 4}}  # fmt: skip
    waiting = {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 1,
               "tid": 7, "ts": 5.0, "dur": 99.0, "args": {"correlation": 8}}  # fmt: skip
    path = _kineto(tmp_path / "k.json", extra=[copy, waiting])
    launches = device_times.read_launches(path)
    table, _ = device_times.join(_events(), ZERO_NS, launches, 3)
    assert table.apart_us == 32 + 6.25 and table.device_us.sum() == 233.5


def test_runs_before_the_marks_are_left_out(tmp_path):
    path = _kineto(tmp_path / "k.json", calls=CALLS[-2:], marks=MARKS[1:])
    launches = device_times.read_launches(path)
    table, _ = device_times.join(_events(), ZERO_NS, launches, 3)
    assert table.device_us.tolist() == [[64, 128, 0]] and table.dur.tolist() == [300]


@pytest.mark.parametrize(("late_us", "told"), [(2_000.0, "2,0"), (-500.0, "-"), (8.0, None)])
def test_a_clock_that_is_late_is_shifted_as_the_marks_say(tmp_path, late_us, told):
    """Marks are 10 and 20 µs wider than runs: that much less may stay, and no more."""
    path = _kineto(tmp_path / "k.json", late_us=late_us)
    launches = device_times.read_launches(path)
    table, note = device_times.join(_events(), ZERO_NS, launches, 3)
    assert table.device_us.sum() > 190
    assert (note is None) if told is None else f"differ by {told}" in note


def test_clocks_that_no_shift_aligns_are_refused(tmp_path):
    path = _kineto(tmp_path / "k.json", marks=[(90, 430), (1400, 330)])
    launches = device_times.read_launches(path)
    table, note = device_times.join(_events(), ZERO_NS, launches, 3)
    assert table is None and "do not fit" in note
    assert device_times.join(_events(EVENTS[:7]), ZERO_NS, launches, 3)[0] is None  # a run is lost


def test_a_broken_file_is_an_error(tmp_path):
    (tmp_path / "k.json").write_text('{"traceEvents": [')
    with pytest.raises(ModelError, match="torch wrote a profile that is not valid"):
        device_times.read_launches(tmp_path / "k.json")


@pytest.fixture
def cuda_nodes(monkeypatch):
    """Profiles of this machine say that all nodes but those of Gemm ran on CUDA."""
    read = profile_events.read

    def on_cuda(path, labels: Labels):
        events = json.loads(path.read_text())
        for event in events:
            if event["cat"] == "Node" and event["args"]["op_name"] != "Gemm":
                event["args"]["provider"] = "CUDAExecutionProvider"
        path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
        return read(path, labels)

    monkeypatch.setattr(profile_events, "read", on_cuda)
    monkeypatch.setattr(device_times, "read", on_cuda)
    monkeypatch.setattr(calibration, "measure", lambda threads: calibration.Bias(0, 0))


@pytest.mark.needs("torch")
def test_clocks_of_this_machine_fit_and_nodes_get_their_kernels(cuda_nodes, monkeypatch):
    """Marks and nodes are real, and a kernel of 7 µs is launched in the middle of each node."""
    join = device_times.join
    monkeypatch.setattr(device_times, "why_not", lambda: None)

    def launching(events, zero_ns, launches, kernels):
        nodes = events.take(events.label > EXECUTE)
        at = zero_ns + np.sort(1000 * nodes.ts + 500 * nodes.dur)
        assert len(launches.marks) > 1 and not len(launches.start_ns)
        count = len(at)
        launches = replace(
            launches, start_ns=at, tid=np.full(count, nodes.tid[0]), device_us=np.full(count, 7.0)
        )
        return join(events, zero_ns, launches, kernels)

    monkeypatch.setattr(device_times, "join", launching)
    trace = tracer.profile(residual(), runs=6, threads=1, optimization="none", in_process=True)
    timed = trace.nodes.set_index("op_type")["time_us_device"]
    assert timed.drop("Gemm").tolist() == [7] * (len(timed) - 1)
    assert np.isnan(timed["Gemm"])
    assert trace.runs[0].instrumented_us.shape == (6,)  # the runs with two profilers do not count
    text = " ".join(trace.notes)
    assert "per run on the device itself" in text and "clocks" not in text


def test_without_torch_on_cuda_the_note_says_what_would_record(cuda_nodes):
    if device_times.why_not() is None:
        pytest.skip("torch has a card here")
    trace = tracer.profile(residual(), runs=2, threads=1, optimization="none", in_process=True)
    assert trace.nodes["time_us_device"].isna().all()
    assert any("torch with CUDA, which is not" in note for note in trace.notes)


def test_inputs_and_outputs_stay_in_the_memory_of_a_provider_that_runs():
    """Only of one that the session has: onnxruntime falls back to the CPU without a word."""
    settings = OrtSettings(provider="cuda", provider_options={"device_id": "1"})

    class Session:
        def __init__(self, *providers):
            self.get_providers = lambda: list(providers)

    cuda = Session("CUDAExecutionProvider", environment.CPU)
    assert feeding.memory_of(settings, cuda) == ("cuda", 1)
    assert feeding.memory_of(settings, Session(environment.CPU)) == feeding.CPU
    assert feeding.memory_of(replace(settings, provider="cpu"), cuda) == feeding.CPU
    assert feeding.memory_of(replace(settings, provider="openvino"), cuda) == feeding.CPU
