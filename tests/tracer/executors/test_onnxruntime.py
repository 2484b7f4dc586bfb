import json
import os
import random

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import helper

import tracer
from tests.graphs import BRANCHES, DATA_DEPENDENT, parse, residual
from tracer.analyzers.cost import typed_model
from tracer.containment.activity import silent
from tracer.errors import ModelError, UsageError
from tracer.executors.onnxruntime import calibration, profile_events, recording
from tracer.executors.onnxruntime.executor import executor
from tracer.executors.settings import OPTIMIZATIONS, OrtSettings
from tracer.graph import loading
from tracer.graph.tensor_type import dtype_name
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import make_feeds


@pytest.fixture(autouse=True)
def no_calibration(monkeypatch):
    """Times do not matter here, and calibrating takes longer than the tests."""
    monkeypatch.setattr(calibration, "measure", lambda threads: calibration.Bias(2.0, 0))


def profiled(model, feedset, settings, progress=silent):
    return executor.profile(model, feedset, settings, progress).run


def run(proto, feeds=None, **options):
    model = loading.from_proto(proto)
    feedset = make_feeds(model) if feeds is None else FeedSet(feeds, None)
    return profiled(model, feedset, OrtSettings(**{"warmup": 1, "threads": 1, **options}))


BRANCH_FEEDS = {
    "x": np.ones(4, np.float32),
    "flag": np.array(True),
    "trips": np.array(3, np.int64),
}


@pytest.mark.nightly
def test_every_run_asked_for_is_recorded_in_as_many_chunks_as_it_takes(monkeypatch):
    monkeypatch.setattr(recording, "_EVENT_BUDGET", 100)
    monkeypatch.setattr(recording, "_WORTHWHILE_RUNS", 1)
    seen = []
    model = loading.from_proto(residual())
    result = profiled(
        model,
        make_feeds(model),
        OrtSettings(runs=57, warmup=2),
        lambda d, t, w: seen.append((d, t)),
    )
    assert result.samples.shape == (57, len(result.kernels))
    assert len(result.instrumented_us) == 57
    assert len(seen) > 5
    assert seen[-1] == (57, 57)


def test_runs_go_on_until_the_time_asked_for_is_measured():
    result = run(residual(), min_time=0.05)
    assert len(result.instrumented_us) > 20  # of runs that take some dozen microseconds


def test_without_optimisation_every_kernel_is_a_node_of_the_graph():
    proto = residual()
    result = run(proto, runs=3, optimization="none")
    assert [k.name for k in result.kernels] == [n.name for n in proto.graph.node]
    assert [k.node for k in result.kernels] == [n.name for n in proto.graph.node]
    assert {k.calls for k in result.kernels} == {1.0}


def test_names_that_break_json_or_repeat_or_are_missing_come_back_as_keys():
    proto = residual(named=False)
    hostile = ['quote"', "back\\slash", "same", "same", "\x1b[31m", "</script>", "", "\u2028"]
    for node, name in zip(proto.graph.node, hostile, strict=True):
        node.name = name
    result = run(proto, runs=2, optimization="none")
    keys = [
        'quote"',
        "back\\slash",
        "Conv_2",
        "Add_3",
        "\x1b[31m",
        "</script>",
        "Flatten_6",
        "\u2028",
    ]
    assert [kernel.node for kernel in result.kernels] == keys


def test_calls_of_bodies_are_counted_and_the_branch_not_taken_has_none():
    proto = onnx.parser.parse_model(BRANCHES)
    result = run(proto, BRANCH_FEEDS, runs=2, optimization="none")
    seen = typed_model.observe(loading.from_proto(proto), result.kernels).calls
    assert seen["If_0"] == seen["If_0.then_branch/Exp_1"] == 1
    assert seen["If_0.else_branch/Neg_0"] == 0
    assert seen["Loop_1.body/Tanh_2"] == 3


def test_parents_of_bodies_report_their_own_time_only():
    result = run(onnx.parser.parse_model(BRANCHES), BRANCH_FEEDS, runs=20, optimization="none")
    assert (result.samples.sum(axis=1) <= result.instrumented_us).all()


def test_shapes_that_depend_on_data_are_those_of_the_run():
    proto = onnx.parser.parse_model(DATA_DEPENDENT)
    model = loading.from_proto(proto)
    feeds = {"x": np.array([[0, 1, 2, 0, 0, 0, 0, 0]], np.float32)}
    result = run(proto, feeds, runs=1, optimization="none")
    assert str(typed_model.observe(model, result.kernels).types["", "z"]) == "int64[2,2]"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("optimization", OPTIMIZATIONS)
def test_external_data_are_found_next_to_the_model(optimization, tmp_path):
    file = tmp_path / "m.onnx"
    onnx.save(residual(), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    model = loading.load(file)
    result = profiled(model, make_feeds(model), OrtSettings(runs=2, optimization=optimization))
    assert len(result.kernels) > 3


REFUSED = {
    "IR": ({"ir_version": 99}, "IR version 99 is newer than the installed onnxruntime"),
    "opset": ({"opset": 99}, "opset 99 of ai.onnx is newer than the installed onnxruntime"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_a_version_that_is_too_new_is_one_line_with_both_versions(change, message):
    proto = residual()
    proto.ir_version = change.get("ir_version", proto.ir_version)
    proto.opset_import[0].version = change.get("opset", 17)
    model = loading.inlined(proto, None, "")  # past the checker, whose limit may be lower
    with pytest.raises(ModelError, match=message) as caught:
        profiled(model, make_feeds(model), OrtSettings(runs=1))
    assert ort.__version__ in str(caught.value)
    assert "at most" in str(caught.value)


def test_an_operator_of_another_domain_is_named_with_its_domain():
    text = """
    <ir_version: 8, opset_import: ["": 16, "acme": 1]>
    g (float[2] x) => (float[2] y) { y = acme.Magic (x) }
    """
    with pytest.raises(ModelError, match="knows no operator Magic in the domain 'acme'"):
        run(onnx.parser.parse_model(text), {"x": np.ones(2, np.float32)}, runs=1)


@pytest.mark.nightly
def test_kernels_write_nothing_to_stderr(capfd):
    ort.set_default_logger_severity(2)  # its default: warnings, and what is worse
    run(onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 16]> g (float[1,1,8,8] x, float[1,4] r, int64[1] b)'
        "=> (float[1,1,2,2] y) { b0 = Sub(b, b)"
        'y = RoiAlign<mode="max", output_height=2, output_width=2>(x, r, b0) }'
    ))  # fmt: skip
    assert capfd.readouterr().err == ""


def test_libraries_of_the_runtime_log_nothing_of_a_model(capfd):
    graph = """<ir_version: 9, opset_import: ["": 20]> g (string[N] x) => (bool[N] y) {
      y = RegexFullMatch <pattern = "[red"> (x)
    }"""
    proto = parse(graph)
    proto.graph.node[0].attribute[0].s = b"\x1b[31m["
    with pytest.raises(ModelError, match=r"Invalid regex pattern: \\x1b\[31m\["):
        run(proto, {"x": np.array(["a"])})
    run(parse(graph.replace("[red", "red")), {"x": np.array(["a"])})
    assert capfd.readouterr().err == ""
    os.write(2, b"shown again")
    assert capfd.readouterr().err == "shown again"


def test_a_provider_that_is_not_installed_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match=r"no provider 'abacus'\. It has .*cpu"):
        run(residual(), provider="abacus")


@pytest.fixture
def profile_file(tmp_path):
    """A profile as onnxruntime writes it, of a model with bodies."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "p")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    proto = onnx.parser.parse_model(BRANCHES)
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for _ in range(4):
        session.run(None, BRANCH_FEEDS)
    from pathlib import Path

    return Path(session.end_profiling())


def test_the_reader_agrees_with_a_json_parser(profile_file, monkeypatch):
    monkeypatch.setattr(profile_events, "_BLOCK_BYTES", 2000)  # many blocks
    labels = profile_events.Labels()
    read = profile_events.read(profile_file, labels)
    expected = json.loads(profile_file.read_text())
    nodes = [e for e in expected if e["cat"] == "Node"]
    numbers = read.label > profile_events.EXECUTE
    assert read.dur[numbers].tolist() == [e["dur"] for e in nodes]
    assert read.ts[numbers].tolist() == [e["ts"] for e in nodes]
    names = [labels.kernels[n - profile_events.EXECUTE - 1].name for n in read.label[numbers]]
    assert names == [e["name"].removesuffix("_kernel_time") for e in nodes]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E5M2FNUZ", "INT4", "UINT4", "BFLOAT16"])
def test_kernels_have_element_types_as_the_model_names_them(name):
    narrow = onnx.TensorProto.DataType.Value(name)
    there = helper.make_node("Cast", ["x"], ["y"], to=narrow)
    back = helper.make_node("Cast", ["y"], ["z"], to=onnx.TensorProto.FLOAT)
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4]) for n in "xz"]
    graph = helper.make_graph([there, back], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    trace = tracer.profile(model, runs=2, optimization="none", in_process=True, confirm=False)
    types = {str(each.dtype) for kernel in trace.runs[0].kernels for each in kernel.output_types}
    assert types == {dtype_name(narrow), "float32"}


@pytest.mark.parametrize("order", ["start", "end", "shuffled"])
def test_nesting_does_not_depend_on_the_order_of_the_file(profile_file, order, tmp_path):
    expected = json.loads(profile_file.read_text())
    resorted = list(expected)
    if order == "start":
        resorted.sort(key=lambda e: (e["ts"], -e["dur"]))
    if order == "shuffled":
        random.Random(0).shuffle(resorted)
    other = tmp_path / "other.json"
    other.write_text("[\n" + ",\n".join(json.dumps(e) for e in resorted) + "\n]")
    totals = []
    for file in (profile_file, other):
        labels = profile_events.Labels()
        read = profile_events.read(file, labels)
        table = profile_events.tabulate(read, len(labels.kernels))
        names = [label.name for label in labels.kernels]
        totals.append(
            {
                n: (s, c)
                for n, s, c in zip(
                    names, table.self_us.T.tolist(), table.calls.T.tolist(), strict=True
                )
            }
        )
    assert totals[0] == totals[1]


def test_self_time_is_the_duration_less_the_bodies(tmp_path):
    file = tmp_path / "p.json"
    rows = [
        # a body ends before its parent, and the file is in the order of ends
        ("Node", "inner_kernel_time", 12, 5),
        ("Session", "SequentialExecutor::Execute", 11, 8),
        ("Node", "inner_kernel_time", 22, 6),
        ("Session", "SequentialExecutor::Execute", 21, 9),
        ("Node", "loop_kernel_time", 10, 30),
        ("Node", "after_kernel_time", 40, 7),
        ("Session", "SequentialExecutor::Execute", 9, 40),
        ("Session", "model_run", 8, 45),
    ]
    file.write_text(
        json.dumps(
            [
                {"cat": c, "name": n, "ts": ts, "dur": d, "tid": 1, "ph": "X", "args": {}}
                for c, n, ts, d in rows
            ]
        )
    )
    labels = profile_events.Labels()
    table = profile_events.tabulate(profile_events.read(file, labels), 3)
    own = dict(zip((label.name for label in labels.kernels), table.self_us[0], strict=True))
    assert own == {"inner": 11, "loop": 30 - 8 - 9, "after": 7}
    assert table.calls.tolist() == [[2, 1, 1]]


def test_a_profile_that_is_not_json_is_an_error_of_ours(tmp_path):
    (tmp_path / "p.json").write_text('[\n{"cat": "Node", "name": "a"b"},\n]')
    with pytest.raises(ModelError, match="not valid JSON"):
        profile_events.read(tmp_path / "p.json", profile_events.Labels())


def test_calibration_finds_a_bias_of_some_microseconds(monkeypatch):
    monkeypatch.undo()
    bias = calibration.measure(1)
    few, many = bias.fixed + 2 * bias.per_tensor, bias.fixed + 3 * bias.per_tensor
    assert 0 < (few + many) / 2 < 100
