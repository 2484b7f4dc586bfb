"""Providers that compile: what a recorded profile of OpenVINO tells, and what follows from it."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tracer
import tracer.cli
from tests.graphs import divided, residual
from tracer.analyzers.attribution import attribute
from tracer.analyzers.grouping import placements, unplaced
from tracer.api.compare import naming
from tracer.api.results import load_result
from tracer.errors import ModelError, UsageError
from tracer.executors.onnxruntime import calibration, kernel_nodes, profile_events, sessions
from tracer.executors.onnxruntime.kernel_nodes import Part
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.records import environment

FOLDER = Path("tests/fixtures/profiles")
PROFILE = FOLDER / "openvino_subgraphs.json"
OPENVINO, CPU = "OpenVINOExecutionProvider", "CPUExecutionProvider"
GROUPS = [("conv1", "relu1"), ("isnan",), ("not", "cast", "mul", "conv2", "relu2")]
"""As OpenVINO took them: onnxruntime told it when the profile was recorded."""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "divided.onnx"
    path.write_bytes(divided().SerializeToString())
    return path


@pytest.fixture
def recorded():
    parts = json.loads((FOLDER / "openvino_parts.json").read_text())
    return [Part(provider, tuple(map(tuple, nodes))) for provider, nodes in parts]


def labels():
    found = profile_events.Labels()
    profile_events.read(PROFILE, found)
    return found.kernels


def saved(path, tmp_path):
    """The graph that providers divide, as the CPU provider saves it."""
    loaded = loading.load(path)
    factory = sessions.Factory(loaded, loaded.proto.SerializeToString(), OrtSettings())
    factory.save_on_cpu(tmp_path / "basic.onnx")
    return loaded, kernel_nodes.SavedNodes.read(tmp_path / "basic.onnx")


@pytest.mark.parametrize("is_told", [True, False])
def test_nodes_of_subgraphs_are_those_that_onnxruntime_told(model, recorded, tmp_path, is_told):
    """Derived from the events alone, they are the same."""
    graph = saved(model, tmp_path)[1]
    parts = recorded if is_told else []
    subgraphs = kernel_nodes.nodes_of_subgraphs(labels(), parts, graph.nodes)
    names = [[name for name, _ in subgraphs[place]] for place in (0, 2)]
    assert names == [list(GROUPS[0]), list(GROUPS[2])]


def test_a_subgraph_has_the_nodes_of_its_parts(model, recorded, tmp_path):
    loaded, graph = saved(model, tmp_path)
    kernels = kernel_nodes.kernels(loaded, graph, labels(), [1.0] * 3, recorded)
    assert [len(kernel.parts) for kernel in kernels] == [2, 0, 5]
    assert attribute(loaded, kernels) == tuple(GROUPS)


def test_a_subgraph_that_did_not_run_shifts_no_other(recorded, model, tmp_path):
    graph = saved(model, tmp_path)[1]
    second = [label for label in labels() if label.name.endswith("_1")]
    subgraphs = kernel_nodes.nodes_of_subgraphs(second, recorded, graph.nodes)
    assert [name for name, _ in subgraphs[0]] == list(GROUPS[2])


def test_nodes_that_cannot_be_told_apart_are_in_no_subgraph(model, tmp_path):
    """Two subgraphs without a kernel between them: nothing shows where one ends."""
    graph = saved(model, tmp_path)[1]
    compiled = [label for label in labels() if label.provider == OPENVINO]
    assert kernel_nodes.nodes_of_subgraphs(compiled, (), graph.nodes) == {}


def test_a_profile_of_another_program_has_a_row_for_each_subgraph(model):
    nodes = load_result(PROFILE, model).nodes.set_index("node")
    assert nodes.index.tolist() == [node.name for node in divided().graph.node]
    times = {"conv1": (53 + 19) / 2, "isnan": 1.5, "conv2": 18}
    assert nodes["time_us"].dropna().to_dict() == pytest.approx(times)
    assert nodes["timed_in"].dropna().to_dict() == {
        "relu1": "conv1", "not": "conv2", "cast": "conv2", "mul": "conv2", "relu2": "conv2",
    }  # fmt: skip
    assert nodes["kernels"]["mul"] == nodes["kernels"]["conv2"]
    assert nodes["macs"]["conv2"] == 64 * 4 * 4


def test_what_each_provider_ran_adds_up(model):
    trace = load_result(PROFILE, model)
    first, second = placements(trace.runs[0], trace.nodes)
    assert (first.provider, first.subgraphs, first.time_us) == (OPENVINO, (5, 2), 36 + 18)
    assert first.nodes == Counter({"Conv": 2, "Relu": 2, "Not": 1, "Cast": 1, "Mul": 1})
    assert (second.provider, second.nodes) == (CPU, Counter(["IsNaN"]))
    assert second.time_us == pytest.approx(1.5)
    assert unplaced(trace.nodes) == 0


def test_the_lines_below_the_table_name_providers(model, capsys):
    assert tracer.cli.main(["report", str(PROFILE), "--model", str(model)]) == 0
    out = capsys.readouterr().out
    assert "openvino: 97.3% of the time, 7 nodes in 2 compiled subgraphs of 5, 2 nodes" in out
    assert "cpu: 2.7% of the time, 1 node (1 IsNaN)" in out
    assert tracer.cli.main(["report", str(PROFILE)]) == 0
    assert "2 compiled subgraphs" in capsys.readouterr().out


def test_subgraphs_are_kept_in_a_trace(model, tmp_path):
    trace = load_result(PROFILE, model)
    again = tracer.load(trace.save(tmp_path / "r.trace"))
    assert again.runs[0].kernels == trace.runs[0].kernels
    assert [len(kernel.parts) for kernel in again.runs[0].kernels] == [2, 0, 5]


def test_a_comparison_lists_what_the_cpu_runs_in_place_of_a_subgraph(model, tmp_path, capfd):
    compiled = load_result(PROFILE, model).save(tmp_path / "openvino.trace")
    alone = tracer.profile(model, runs=6, threads=1, optimization="basic", in_process=True)
    cpu = alone.save(tmp_path / "cpu.trace")
    assert tracer.cli.main(["compare", str(compiled), str(cpu)]) == 0
    tables = capfd.readouterr().out.split("Rows of B in place of ")
    title, _, rest = next(each for each in tables if "subgraph_1" in each.split(",")[0]).partition(
        ")"
    )
    assert " ".join(title.split()).endswith("a compiled subgraph of A (18.00 µs")
    listed = [
        line.split()[0]
        for line in rest.splitlines()
        if line.split() and line.split()[0] in GROUPS[2]
    ]
    assert sorted(listed[:5]) == sorted(GROUPS[2])


def test_openvino_waits_so_its_times_are_those_of_the_work(model):
    assert not any("asynchronously" in note for note in load_result(PROFILE, model).notes)


def test_a_kernel_is_named_alike_in_all_sessions(tmp_path):
    """OpenVINO counts subgraphs over the sessions of a process, so the second has other names."""
    other = tmp_path / "second.json"
    text = (
        PROFILE.read_text().replace("subgraph_2", "subgraph_4").replace("subgraph_1", "subgraph_3")
    )
    other.write_text(text)
    found = profile_events.Labels()
    for path in (PROFILE, other):
        profile_events.read(path, found)
    assert len(found.kernels) == 3


def test_a_provider_that_turns_out_to_compile_is_opened_without_saving(monkeypatch):
    """No such provider is installed, so a session that saves its graph is refused here."""
    opened = sessions.Factory.open
    monkeypatch.setattr(calibration, "measure", lambda threads: calibration.Bias(0, 0))

    def refusing(self, profile=None, optimized=None):
        if profile is not None and optimized is not None:
            raise sessions.CompiledError("it contains compiled nodes")
        return opened(self, profile, optimized)

    monkeypatch.setattr(sessions.Factory, "open", refusing)
    trace = tracer.profile(residual(), runs=3, threads=1, optimization="basic", in_process=True)
    assert trace.nodes["time_us"].notna().all()


def test_onnxruntimes_refusal_to_save_is_told_apart(monkeypatch):
    message = "Unable to serialize model as it contains compiled nodes. Please disable"

    def refusing(*args, **options):
        raise RuntimeError(message)

    monkeypatch.setattr(onnxruntime, "InferenceSession", refusing)
    loaded = loading.from_proto(residual())
    factory = sessions.Factory(loaded, b"", OrtSettings())
    with pytest.raises(sessions.CompiledError, match="compiled nodes"):
        factory.open()
    assert issubclass(sessions.CompiledError, ModelError)


def test_names_of_providers():
    assert (
        environment.provider_of("ov").name == environment.provider_of("OPENVINO").name == OPENVINO
    )
    assert environment.provider_of("TensorrtExecutionProvider").short == ("tensorrt", "trt")
    assert environment.is_cpu("cpu") and environment.is_cpu(CPU) and not environment.is_cpu("cuda")
    strange = environment.provider_of("Abacus")
    assert (strange.name, strange.compiles, strange.waits) == (
        "AbacusExecutionProvider", True, False
    )  # fmt: skip


def test_every_provider_of_the_table_is_one_of_onnxruntimes():
    """ROCm, Vitis AI and TensorRT RTX left or joined its list with a release."""
    theirs = set(onnxruntime.get_all_providers())
    ours = {provider.name for provider in environment.PROVIDERS}
    assert ours - theirs <= {"ROCMExecutionProvider", "NvTensorRTRTXExecutionProvider"}
    shorts = [short for provider in environment.PROVIDERS for short in provider.short]
    assert len(set(shorts)) == len(shorts)


def test_an_absent_provider_is_refused_with_what_brings_it():
    with pytest.raises(UsageError, match="openvino comes with onnxruntime-openvino"):
        tracer.profile(residual(), provider="ov", in_process=True)


@pytest.mark.parametrize(
    ("provider", "operator", "name", "is_compiled"),
    [  # as in onnxruntime's issues 18803 and 9567, and its DirectML and QNN providers
        ("TensorrtExecutionProvider", "TRTKernel_graph_g_116_1",
         "TensorrtExecutionProvider_TRTKernel_graph_g_116_1_0", True),
        ("DmlExecutionProvider", "DmlFusedNode_0_1", "DmlFusedNode_0_1", True),
        ("QNNExecutionProvider", "QNN_857_1", "QNNExecutionProvider_QNN_857_1_0", True),
        ("CUDAExecutionProvider", "Conv", "conv1", False),
        ("CUDAExecutionProvider", "FusedMatMul", "FusedMatMul_12", False),
        ("", "Conv", "Conv_1", False),
    ],
)  # fmt: skip
def test_a_compiled_subgraph_is_known_by_its_name(provider, operator, name, is_compiled):
    assert environment.is_compiled(provider, operator, name) == is_compiled


def test_an_option_of_a_provider_is_a_name_and_a_text(tmp_path, capfd):
    (tmp_path / "m.onnx").write_bytes(residual().SerializeToString())
    line = ["profile", str(tmp_path / "m.onnx"), "--provider-option"]
    assert tracer.cli.main([*line, "device_type"]) == 2
    assert "is not of the form name=text" in capfd.readouterr().err


def test_cuda_that_blocks_is_told(monkeypatch, recorded):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    trace = load_result(FOLDER / "cuda_launch_blocking.json")
    notes = kernel_nodes.device_notes(trace.runs[0].kernels)
    assert any("CUDA_LAUNCH_BLOCKING=1 made each launch wait" in note for note in notes)
    assert np.isnan(trace.nodes["time_us_device"]).all()


@pytest.mark.parametrize(
    ("text", "level", "provider"),
    [("@ort", None, None), ("@ort:basic", "basic", None), ("@ort:ov", None, "ov"),
     (f"@ort:{OPENVINO}:none", "none", OPENVINO)],
)  # fmt: skip
def test_a_side_of_a_comparison_names_level_and_provider(text, level, provider):
    side = naming.parse(f"models/lenet/lenet.onnx{text}")
    assert (side.optimization, side.provider) == (level, provider)


@pytest.mark.parametrize("text", ["@ort:abacus", "@ort:openvino:abacus"])
def test_a_side_with_a_word_that_is_neither_is_refused(text):
    with pytest.raises(UsageError, match="there is no optimization 'abacus'"):
        naming.parse(f"models/lenet/lenet.onnx{text}")


def test_options_of_a_provider_need_a_side_on_one(capfd):
    sides = ["models/lenet/lenet.onnx", "models/lenet/lenet.onnx@ort:none"]
    assert tracer.cli.main(["compare", *sides, "--provider-option", "device_type=CPU"]) == 2
    assert "--provider-option would do nothing" in capfd.readouterr().err
