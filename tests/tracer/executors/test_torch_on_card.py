"""Times of an accelerator through torch: real traces of cards, read as torch itself reads them."""

import gzip
import json
from collections import defaultdict

import numpy as np
import pytest

import tracer
import tracer.cli

torch = pytest.importorskip("torch")

from torch.autograd.profiler import profile  # noqa: E402
from torch.autograd.profiler_util import EventList  # noqa: E402

from tests.tracer.executors.kineto import FOLDER, Event, real, recorded  # noqa: E402
from tracer.analyzers.grouping import by_kernel  # noqa: E402
from tracer.analyzers.timing import operation_table  # noqa: E402
from tracer.api.results import load_result  # noqa: E402
from tracer.executors.calls import Calls, DeviceUse, brief_name  # noqa: E402
from tracer.executors.eager import Measured, Overhead, profile_of  # noqa: E402
from tracer.executors.torch import events as marks  # noqa: E402
from tracer.records import environment  # noqa: E402
from tracer.records.model_info import ModelInfo  # noqa: E402
from tracer.records.trace import Trace  # noqa: E402

H100, GRAPH, TRAINING, TRITON, STREAMS = (
    f"torch_{name}.json.gz"
    for name in ("h100_training", "h100_graph", "mi250_training", "a100_triton", "a100_two_streams")
)
EVERY = pytest.mark.parametrize("name", [H100, GRAPH, TRAINING, TRITON, STREAMS])
AUTOGRAD = "autograd::engine::evaluate_function: "


def run_of(events):
    """The spans of `events` as one run."""
    events = [event for event in events if event.called != marks.RUN]
    last = max(event.end for event in events)
    (run,) = marks.runs(recorded([Event(marks.RUN, 0, last + 1), *events]), "cuda")
    return run


def work_of(events):
    """Kernels and copies, without ranges and memory."""
    return [e for e in events if e.on_device and not e.annotation and e.called != "[memory]"]


def profiled(run, notes=()):
    calls = Calls("torch", on_device=True)
    calls.add(run)
    none = Overhead(0.0, 0.0)
    return profile_of(
        calls, Measured("torch", "cuda", (np.ones(2),), [900.0], [1000.0], none, notes)
    )


def own_times(profiled):
    """µs by row and operator: those of the kernels that the operator launched itself."""
    run, times = profiled.run, defaultdict(float)
    operators = {kernel.name: kernel.op_type for kernel in run.kernels}
    for kernel, time in zip(run.kernels, run.samples[0], strict=True):
        if time:
            times[kernel.node, operators[kernel.scope]] += float(time)
    return dict(times)


def operators_of_torch(events):
    """Own µs on the device by operator, as `key_averages` of torch has them.

    Torch gives ranges the time from their first kernel to their last as well, and a buffer of CUPTI
    that of a kernel whose operator has its number: both are left out here.
    """
    working = [
        event
        for event in events
        if not (event.annotation and event.on_device) and event.called != "Activity Buffer Request"
    ]
    session = profile()
    session.use_device = "cuda"  # its constructor refuses a device that is not there
    functions = session._parse_kineto_results(recorded(working).kineto_results)
    listed = EventList(functions, use_device="cuda")
    listed._build_tree()
    return {
        each.key: each.self_device_time_total
        for each in listed.key_averages()
        if each.device_type == torch.autograd.DeviceType.CPU and each.self_device_time_total
    }


@EVERY
def test_operators_have_the_times_that_torch_gives_them(name):
    mine = defaultdict(float)
    for (_, operator), time in own_times(profiled(run_of(real(name)))).items():
        mine[operator] += time
    torchs = operators_of_torch(real(name))
    if name == GRAPH:  # torch gives the mark of the run what no operator launched
        torchs["cudaGraphLaunch"] = torchs.pop(marks.RUN)
    assert dict(mine) == pytest.approx(torchs, rel=1e-4)


@EVERY
def test_no_time_of_the_card_is_lost_or_counted_twice(name):
    work = work_of(real(name))
    result = profiled(run_of(real(name)))
    table = operation_table(result)
    took = sum(event.end - event.start for event in work) / 1e3
    assert table["time_us"].sum() == pytest.approx(took, rel=1e-5)
    assert table["time_us_host"].sum() == pytest.approx(sum(k.host_us for k in result.run.kernels))
    assert {brief_name(event.called) for event in work} <= set(by_kernel(result.run)["op_type"])
    assert result.run.is_on_device


def test_a_training_step_of_a_card_has_its_rows():
    """The forward operators, the backward pass on a thread of its own, and the optimizer."""
    table = operation_table(profiled(run_of(real(TRAINING)))).set_index("node")
    kernels = table["kernels"]
    assert "Cijk_Ailk_Bjlk" in kernels["ProfilerStep#1/linear (backward)"]
    assert "multi_tensor_apply" in kernels["ProfilerStep#1/SGD.step"]
    assert "Memcpy HtoD" in kernels["ProfilerStep#1/to"]
    assert table["time_us"]["ProfilerStep#1/linear"] == pytest.approx(6.88 + 17.6, rel=1e-4)
    assert table["time_us_host"]["ProfilerStep#1/linear"] == pytest.approx(275.282, rel=1e-4)


def test_a_kernel_of_triton_has_its_name():
    table = operation_table(profiled(run_of(real(TRITON)))).set_index("node")
    assert table["time_us"]["triton_poi_fused_add_cos_sin_0"] == pytest.approx(1.76)


def test_a_training_step_of_an_h100():
    """Two steps; the sums are those of torch's table."""
    steps = marks.runs(recorded(real(H100)), "cuda")
    calls = Calls("torch", on_device=True)
    for step in steps:
        calls.add(step)
    assert calls.samples().sum() == pytest.approx(199.715, abs=0.01)
    calls.observe(steps[1])
    rows = calls.operations
    assert [r.module for r in rows.values()][:7] == ["fc"] * 7
    assert rows["fc/conv2d"].peak_bytes == 8 * 16 * 32 * 32 * 4
    assert "optimizer/Adam.step" in rows
    assert rows["fc/conv2d (backward)"].module == "fc"


def test_kernels_of_a_graph_belong_to_its_launch():
    first, second, other = marks.runs(recorded(real(GRAPH)), "cuda")
    table = operation_table(profiled(first))
    assert table["node"].tolist() == ["cudaGraphLaunch"]
    assert table["time_us"][0] == pytest.approx(4.16 + 1.952 + 1.984 + 1.376 + 3.488 + 6.752)
    use = DeviceUse()
    use.add(first)
    use.add(second)
    notes = list(use.notes(50.0))
    assert notes[0].endswith("6 kernels a run on 1 stream")
    assert "in 0.0 µs of them the card waited" in notes[1]
    assert notes[-1].startswith("6 kernels of a run are in 1 launch of captured graphs")
    notes = notes_of_run(other)
    assert notes[0].endswith("12 kernels a run on 2 streams")
    assert notes[3].endswith("first kernel: 20.3 µs, 19.2 µs")


def test_streams_that_overlap_are_told():
    """nccl has a stream of its own."""
    events = real(STREAMS)
    work = work_of(events)
    busy = np.zeros(max(event.end for event in work), np.bool_)
    for event in work:
        busy[event.start : event.end] = True
    text = " ".join(notes_of(events, wall_us=7000))
    assert f"busy {busy.sum() / 1e3:,.1f} of 7,000.0 µs" in text
    assert "47 kernels a run on 2 streams" in text
    assert "5 Memset (Device)" in text
    total = sum(event.end - event.start for event in work)
    assert f"their times sum to {total / 1e3:,.1f} µs" in text


def notes_of_run(run, wall_us=1e3):
    use = DeviceUse()
    use.add(run)
    return list(use.notes(wall_us))


def notes_of(events, wall_us=1e3):
    return notes_of_run(run_of(events), wall_us)


STEP = [
    Event(marks.MODULE + "fc", 5, 900, correlation=900),
    Event("aten::linear", 10, 800, correlation=1, sequence=7),
    Event("aten::addmm", 20, 700, correlation=2, sequence=7),
    Event("cudaLaunchKernel", 30, 60, correlation=4),  # the calls have numbers of their own
    Event("gemm", 50_000, 53_000, correlation=4, linked=2, on_device=True),
    # autograd has a thread of its own for a device
    Event(AUTOGRAD + "AddmmBackward0", 60_000, 61_000, 3, thread=2, sequence=7),
    Event("aten::mm", 60_100, 60_900, correlation=4, thread=2),
    Event("cudaLaunchKernel", 60_200, 60_300, correlation=5, thread=2),
    Event("gemm", 70_000, 75_000, correlation=5, linked=4, on_device=True),
    Event("cudaDeviceSynchronize", 62_000, 99_000, correlation=98),
]  # fmt: skip


def test_a_kernel_counts_for_the_operator_that_launched_it():
    result = profiled(run_of(STEP))
    assert own_times(result) == pytest.approx(
        {("fc/linear", "aten::addmm"): 3.0, ("fc/linear (backward)", "aten::mm"): 5.0}
    )
    assert [row.module for row in result.operations] == ["fc", "fc"]
    times = operation_table(result).set_index("node")["time_us_host"]
    assert times["fc/linear"] == pytest.approx(0.79)
    (first, second, *_) = notes_of(STEP, wall_us=100)
    assert first.startswith("the card was busy 8.0 of 100.0 µs, and idle 92%: 2 kernels a run")
    assert second.startswith("1 gaps between kernels took 17.0 µs of a recorded run; in 17.0 µs")


def test_what_a_module_launches_without_an_operator_has_a_row_in_it():
    """A kernel of Triton or CuPy, a graph, and what nothing on the host launched."""
    events = [
        Event(marks.MODULE + "own", 5, 9000, correlation=1),
        Event("cuLaunchKernelEx", 10, 20, correlation=31),
        Event("cumsum_kernel", 30, 50, correlation=31, linked=1, on_device=True),
        Event("cudaGraphLaunch", 100, 200, correlation=32),
        Event("void gemm<4>(float*)", 300, 500, correlation=32, on_device=True),
        Event("void gemm<4>(float*)", 500, 900, correlation=32, on_device=True),
        Event("cumsum", 950, 990, correlation=33),  # an operator, and no call of the driver
        Event("stray", 1000, 1100, correlation=77, on_device=True),
    ]
    result = profiled(run_of(events))
    times = operation_table(result).set_index("node")["time_us"]
    assert times.to_dict() == pytest.approx(
        {"own/cumsum_kernel": 0.02, "own/cudaGraphLaunch": 0.6, "own/cumsum": 0.0, "stray": 0.1}
    )
    assert by_kernel(result.run).set_index("op_type")["time_us"]["gemm<4>(float*)"] == (
        pytest.approx(0.6)
    )


def test_what_is_no_work_of_the_model_is_left_out():
    events = [
        *STEP,
        Event("Lazy Function Loading", 40, 45),
        Event("Activity Buffer Request", 1000, 2000),
        Event("Context Sync", 62_000, 99_000, on_device=True, correlation=98),
        Event("my range", 50_000, 75_000, on_device=True, annotation=True),
    ]
    assert own_times(profiled(run_of(events))) == own_times(profiled(run_of(STEP)))


def test_memory_is_that_of_the_card():
    events = [
        *STEP,
        Event("[memory]", 25, 25, on_device=True, allocated=512),
        Event("[memory]", 26, 26, allocated=4096),  # on the host
        Event("[memory]", 27, 27, on_device=True, allocated=-512),
        Event("[memory]", 28, 28, on_device=True, allocated=256),
    ]
    calls = Calls("torch", on_device=True)
    calls.observe(run_of(events))
    assert calls.operations["fc/linear"].peak_bytes == 512


@pytest.mark.parametrize("name", [GRAPH, TRAINING, TRITON, STREAMS])
def test_the_file_that_torch_wrote_has_the_same_times(name, tmp_path):
    """Also where its kernels name operators by other numbers, as those of torch 2.0 do."""
    document = json.loads(gzip.decompress((FOLDER / name).read_bytes()))
    (tmp_path / "trace.json").write_text(json.dumps(document))
    trace = load_result(tmp_path / "trace.json")
    took = sum(event.end - event.start for event in work_of(real(name))) / 1e3
    assert trace.nodes["time_us"].sum() == pytest.approx(took, rel=1e-3)
    assert any(note.startswith("the card was busy") for note in trace.notes)
    for record in document["traceEvents"]:
        if record["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            record["args"]["External id"] += 10_000
    (tmp_path / "renumbered.json").write_text(json.dumps(document))
    again = load_result(tmp_path / "renumbered.json").nodes
    rows = again.set_index("node")["time_us"].reindex(trace.nodes["node"])
    assert rows.tolist() == pytest.approx(trace.nodes["time_us"].tolist(), rel=1e-3)


def test_a_card_without_work_is_told():
    """Another profiler in the process may keep events of the card from torch."""
    (note,) = notes_of([event for event in STEP if not event.on_device])
    assert "torch recorded no work of it" in note


def test_a_result_tells_how_busy_the_card_was_and_which_time_is_whose(tmp_path, capsys):
    use = DeviceUse()
    use.add(run_of(STEP))
    notes = tuple(use.notes(900))
    result = profiled(run_of(STEP), notes)
    model = ModelInfo("net.py:Net", "0" * 64, 0, {}, "torch", nodes=1, params=1)
    trace = Trace(
        model, environment.observe(), {}, (result.run,), operation_table(result), result.run.notes
    )
    path = trace.save(tmp_path / "r.trace")
    again = tracer.load(path)
    assert again.runs[0].kernels == result.run.kernels
    assert again.nodes["time_us_host"].tolist() == trace.nodes["time_us_host"].tolist()
    assert tracer.cli.main(["report", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "nodes 8.00 µs on the device" in out
    assert notes[0] in out
    assert "card µs" in out
    assert "host µs" in out
