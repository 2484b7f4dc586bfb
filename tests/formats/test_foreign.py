"""Profiles that other programs recorded: the times are those of their files, and no more."""

import json
from collections import defaultdict
from itertools import chain
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tracer
import tracer.cli
from tests.graphs import BRANCHES, parse
from tracer.api.results import is_profile, load_result
from tracer.errors import InputError, UsageError
from tracer.records.counted_runs import outliers
from tracer.support.measurements import bulk

LENET = "models/lenet/lenet.onnx"
RUNS = 6


def profiled(model, feeds, folder, runs=RUNS):
    """The profile that onnxruntime writes by itself."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for _ in range(runs):
        session.run(None, dict(zip(names, feeds, strict=True)))
    return session.end_profiling()


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    image = np.random.default_rng(0).random((2, 3, 32, 32), np.float32)
    return profiled(LENET, [image], tmp_path_factory.mktemp("ort"))


def kernel_times(path):
    """Event name -> µs in each run but the first, from the file itself."""
    events = json.loads(Path(path).read_text())
    starts = sorted(e["ts"] for e in events if e["name"] == "model_run")
    times = defaultdict(lambda: np.zeros(len(starts)))
    for event in events:
        if event["name"].endswith("_kernel_time"):
            run = np.searchsorted(starts, event["ts"], side="right") - 1
            times[event["name"].removesuffix("_kernel_time")][run] += event["dur"]
    return {name: each[1:] for name, each in times.items()}


def time_of(trace, *kernels):
    """The mean time of a row of `kernels`, as of a busy machine: without outliers and stalls."""
    settled = sum(kernels)[~outliers(trace.runs[0].instrumented_us)]
    return settled[bulk(settled, tick=1.0)].mean()


def assert_uncorrected(rows):
    """Times are those of the file; near a tick of the clock, where none is below 0, no less."""
    assert (rows["time_us"] >= rows["time_us_raw"] * (1 - 1e-9)).all()
    long = rows[rows["time_us_raw"] >= 3]
    assert not long.empty
    assert long["time_us"].tolist() == pytest.approx(long["time_us_raw"].tolist())


def test_rows_are_kernels_with_the_times_of_the_file(profile):
    trace = load_result(profile)
    (run,) = trace.runs
    times = kernel_times(profile)
    assert [kernel.name for kernel in run.kernels] == list(times)
    assert run.samples.T.tolist() == [each.tolist() for each in times.values()]
    shown = dict(zip(trace.nodes["node"], trace.nodes["time_us_raw"], strict=True))
    assert shown == pytest.approx({n: time_of(trace, t) for n, t in times.items()})
    assert_uncorrected(trace.nodes)
    assert len(run.wall_us) == RUNS - 1
    assert trace.nodes["macs"].isna().all()


def test_with_the_model_rows_are_nodes_with_their_work(profile, tmp_path):
    trace = load_result(profile, LENET)
    rows = trace.nodes.set_index("node")
    times = kernel_times(profile)
    counted = tracer.count(LENET, batch=2).nodes.set_index("node")
    for name in ("macs", "flops", "params", "bytes_read", "module", "source"):
        assert rows.loc[counted.index, name].tolist() == counted[name].tolist()
    timed = rows[rows["time_us"].notna()]
    named = [kernels.split("; ") for kernels in timed["kernels"]]
    assert sorted(chain(*named)) == sorted(times)  # each kernel is in one row
    for raw_us, kernels in zip(timed["time_us_raw"], named, strict=True):
        assert raw_us == pytest.approx(time_of(trace, *(times[each] for each in kernels)))
    assert_uncorrected(timed)
    assert rows["time_us"]["node_Conv_22"] > 0
    again = tracer.load(trace.save(tmp_path / "r.trace"))
    assert again.notes == trace.notes and again.model == trace.model


def test_numbers_that_differ_between_processes_do_not_matter(profile, tmp_path):
    """onnxruntime numbers the reorders that it adds in another order in every process."""
    text = Path(profile).read_text()
    names = ("ReorderOutput_kernel_time", "ReorderOutput_token_4_kernel_time")
    if not all(name in text for name in names):
        pytest.skip("this processor's layout takes no two reorders")
    first, second = names
    text = text.replace(first, "\0").replace(second, first).replace("\0", second)
    (tmp_path / "swapped.json").write_text(text)
    times = [
        load_result(path, LENET).nodes.set_index("node")["time_us"].dropna()
        for path in (profile, tmp_path / "swapped.json")
    ]
    own = [each[~each.index.str.startswith("runtime:")] for each in times]
    assert own[0].to_dict() == own[1].to_dict() and len(own[0]) > 6


def test_what_is_not_known_is_told(profile):
    for model in (None, LENET):
        trace = load_result(profile, model)
        text = " ".join(trace.notes)
        assert "with its overhead" in text and "only a calibrated run" in text
        assert "does not say on which machine" in text
        assert f"the first of {RUNS} runs is left out" in text
        assert ("--model FILE joins them" in text) == (model is None)
        assert "not known" in trace.environment.summary


def test_a_profile_of_another_model_is_told(profile, tmp_path):
    trace = load_result(profile, "models/resnet_cifar/resnet20.onnx")
    assert any("kernels are not in the graph" in note for note in trace.notes)


def test_bodies_and_nameless_nodes_have_rows(tmp_path):
    proto = parse(BRANCHES)
    for node in proto.graph.node:
        node.name = ""
    feeds = [np.ones(4, np.float32), np.array(True), np.array(3)]
    path = profiled(proto.SerializeToString(), feeds, tmp_path)
    names = load_result(path).nodes["node"].tolist()
    assert len(set(names)) == len(names) and all(names)
    run = load_result(path).runs[0]
    assert {"If", "Loop", "Tanh"} <= {kernel.op_type for kernel in run.kernels}
    assert max(kernel.calls for kernel in run.kernels) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds no run of a model"),
        ('[{"cat": "Session", "name": "x", "ts": 1, "dur": 2, "tid": 3}]', "holds no run"),
        ("[1, 2]", "not a profile of onnxruntime"),
        ("[{", "not a profile of onnxruntime"),
        (f'[{{"cat": "Node", "name": "a", "ts": {10**30}, "dur": 2, "tid": 3}}]', "not a profile"),
        (
            '[{"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 2, "tid": 3, '
            '"args": {"op_name": 5}}]',
            "not a profile",
        ),
        (
            '[{"cat": "Kernel", "name": "a", "ts": 1, "dur": 2, "tid": 3, "args": {"op_name": 5}}]',
            "not a profile",
        ),
        ("{}", "holds no operator of torch"),
        (
            '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e999}]}',
            "not a trace",
        ),
        ('{"traceEvents": 5}', "not a trace of torch.profiler"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": "b"}]}', "not a trace"),
    ],
)
def test_a_file_that_is_no_profile_is_named(content, message, tmp_path):
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(InputError, match=message):
        load_result(tmp_path / "p.json")


def test_a_trace_is_no_profile_and_packed_ones_are_refused(tmp_path):
    assert not is_profile("tests/fixtures/traces/profile.trace")
    (tmp_path / "p.json.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(InputError, match="gunzip"):
        load_result(tmp_path / "p.json.gz")


def test_the_command_shows_and_writes_it(profile, capfd, tmp_path):
    args = ["report", profile, "--model", LENET, "-o", str(tmp_path / "x.annotated.onnx")]
    assert tracer.cli.main(args) == 0
    out, err = capfd.readouterr()
    assert "profiled runs" in out and "node_Conv_22" in out and "wrote" in err
    assert (tmp_path / "x.annotated.onnx").exists()


@pytest.fixture(scope="module")
def of_torch(tmp_path_factory):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    path = tmp_path_factory.mktemp("torch") / "trace.json"
    averages = []

    def ready(recorded):
        recorded.export_chrome_trace(str(path))
        averages.extend(recorded.key_averages())

    schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=cpu, schedule=schedule, record_shapes=True, on_trace_ready=ready
    ) as recorded:
        for _ in range(4):
            net(torch.ones(2, 3, 8, 8)).sum().backward()
            recorded.step()
    return path, averages


def test_eager_rows_have_the_times_of_torchs_own_table(of_torch):
    path, averages = of_torch
    trace = load_result(path)
    (run,) = trace.runs
    assert len(run.wall_us) == 3
    ours = defaultdict(float)
    for kernel, mean in zip(run.kernels, run.samples.mean(axis=0), strict=True):
        ours[kernel.op_type] += mean
    for event in averages:
        if event.key.startswith("aten::conv") or event.key in ("aten::clamp_min", "aten::sum"):
            assert ours[event.key] == pytest.approx(
                event.self_cpu_time_total / 3, rel=0.02, abs=0.1
            )
    assert {"conv2d", "relu", "conv2d (backward)"} <= set(trace.nodes["op_type"])
    shapes = trace.nodes.set_index("op_type")["input_shapes"]
    assert shapes["conv2d"].startswith("float32[2,3,8,8], float32[4,3,3,3]")


def test_what_a_trace_of_torch_cannot_tell_is_told(of_torch):
    text = " ".join(load_result(of_torch[0]).notes)
    assert "only a calibrated run" in text and "modules are not known" in text
    with pytest.raises(UsageError, match="Leave out --model"):
        load_result(of_torch[0], LENET)
