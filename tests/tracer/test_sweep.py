"""Batches, threads and optimisation levels in one trace: a run, and rows of its own, for each."""

import csv
import io
import json
import sys
from itertools import product
from pathlib import Path

import onnx
import onnxruntime
import pandas as pd
import pytest

import tracer
import tracer.cli
from tests.graphs import residual
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.table import rows_of
from tracer.analyzers.views import render
from tracer.errors import InputError, UsageError
from tracer.records.environment import Peak, Peaks
from tracer.records.trace import Run
from tracer.storage import trace_file

LEVELS = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
KEY = ["executor", "batch", "threads", "optimization", "phase", "past"]


def run(capfd, *args):
    code = tracer.cli.main([str(arg) for arg in args])
    out = capfd.readouterr()
    return code, out.out, out.err


def told(threads):
    return Peaks(threads, Peak(threads * 1e11, "told"), Peak(2e10, "told"))


@pytest.fixture(scope="module")
def trace():
    return tracer.profile(
        residual(),
        batch=[1, 2],
        threads=[1, 2],
        optimization=["none", "all"],
        runs=3,
        warmup=0,
        peaks=told,
    )


@pytest.mark.nightly
def test_there_is_a_run_for_each_combination_and_its_rows_are_its_own(trace):
    keys = [(run.batch, run.threads, run.optimization) for run in trace.runs]
    assert keys == list(product([1, 2], [1, 2], ["none", "all"]))
    assert not trace.nodes.duplicated([*KEY, "node"]).any()
    assert sum(len(rows_of(trace, run)) for run in trace.runs) == len(trace.nodes)
    for one in trace.runs:
        rows = rows_of(trace, one)
        named = {name for cell in rows["kernels"].dropna() for name in cell.split(", ")}
        assert named == {kernel.name for kernel in one.kernels}


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_has_the_kernels_of_its_level(trace, level, tmp_path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(residual().SerializeToString(), options)
    expected = sorted(node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node)
    for one in trace.runs:
        if one.optimization == level:
            assert sorted(kernel.op_type for kernel in one.kernels) == expected


def test_the_file_keeps_the_runs_apart(trace, tmp_path):
    (tmp_path / "r.trace").write_bytes(trace_file.dumps(trace))
    again = tracer.load(tmp_path / "r.trace")
    assert [run.key for run in again.runs] == [run.key for run in trace.runs]
    pd.testing.assert_frame_equal(again.nodes, trace.nodes)
    assert again.environment == trace.environment


@pytest.mark.nightly
def test_every_view_tells_the_runs_apart(trace):
    runs = json.loads(render(trace, "json"))["runs"]
    assert [[run[name] for name in KEY] for run in runs] == [[*r.key.values()] for r in trace.runs]
    for by in ("node", "op", "kernel"):
        rows = list(csv.DictReader(io.StringIO(render(trace, "csv", ViewOptions(by=by)).decode())))
        assert len({tuple(row[name] for name in KEY) for row in rows}) == 8
    page = render(trace, "md").decode()
    headlines = [line for line in page.splitlines() if "· onnxruntime" in line and "batch" in line]
    assert len(headlines) == len(set(headlines)) == 8


@pytest.mark.nightly
def test_notes_name_the_run_by_what_differs():
    trace = tracer.profile(residual(), threads=[1, 2], runs=2)
    told = [note for note in trace.notes if "inputs are random" in note]
    assert [note.partition(": ")[0] for note in told] == ["threads 1", "threads 2"]
    assert all(not note.startswith("threads") for note in tracer.profile(residual(), runs=2).notes)


def test_each_number_of_threads_has_its_own_roofs(trace):
    for one in trace.runs:
        rows = rows_of(trace, one)
        rows = rows[(rows["bound"] == "compute") & (rows["roof_fraction"] < 1)]
        roofs = rows["flops"] / (rows["roof_fraction"] * rows["time_us"]) * 1e6
        assert trace.environment.peaks_at(one.threads) == told(one.threads)
        if one.optimization == "none":  # a kernel of one node: its row has all of its work
            assert roofs.tolist() == pytest.approx([one.threads * 1e11] * len(rows))


def test_one_value_twice_is_one_run_and_an_empty_list_is_refused():
    assert len(tracer.profile(residual(), threads=[1, 1], runs=2).runs) == 1
    with pytest.raises(UsageError, match=r"threads is \[\]"):
        tracer.profile(residual(), threads=[])


@pytest.mark.nightly
def test_a_comparison_does_not_guess_which_run_is_meant(tmp_path):
    tracer.profile(residual(), threads=[1, 2], runs=2).save(tmp_path / "r.trace")
    with pytest.raises(InputError, match="several runs of one batch: threads 1; threads 2"):
        tracer.compare([str(tmp_path / "r.trace")] * 2)


def test_the_command_takes_lists(tmp_path, capfd):
    onnx.save(residual(), tmp_path / "m.onnx")
    options = ("--threads", "1,2", "--optimization", "none,all", "--runs", "2", "--json")
    code, out, _ = run(capfd, "profile", tmp_path / "m.onnx", *options)
    runs = json.loads(out)["runs"]
    assert code == 0
    assert [(r["threads"], r["optimization"]) for r in runs] == list(product([1, 2], LEVELS))


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--threads", "1,1025", "every number must be from 0 to 1,024"),
        ("--threads", "two", "'two' is not a list of integers"),
        ("--threads", "1,1", "names a number twice"),
        ("--threads", "-1", "every number must be from 0 to 1,024"),
        ("--optimization", "none,most", "'most' is not one of none, basic, extended, all"),
    ],
)
def test_the_command_names_a_value_that_is_not_allowed(option, text, message, tmp_path, capfd):
    onnx.save(residual(), tmp_path / "m.onnx")
    code, _, err = run(capfd, "profile", tmp_path / "m.onnx", option, text)
    assert (code, message in " ".join(err.split())) == (2, True)


SEEN = """
import torch

SEEN = []

class Net(torch.nn.Module):
    input_shape = (4,)

    def forward(self, x):
        SEEN.append(torch.get_num_threads())
        return x + 1
"""


def test_a_framework_runs_with_each_number_of_threads(tmp_path):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    file = tmp_path / "seen_threads.py"
    file.write_text(SEEN)
    trace = tracer.profile_framework(f"{file}:Net", threads=[1, 2], runs=2, warmup=0)
    assert list(dict.fromkeys(sys.modules["tracer_source_seen_threads"].SEEN)) == [1, 2]
    assert [run.threads for run in trace.runs] == [1, 2]
    assert trace.settings["threads"] == [1, 2]
    assert torch.get_num_threads() == before


OLDER = Path(__file__).parents[1] / "fixtures" / "traces" / "profile.trace"


def test_runs_of_an_older_trace_get_what_its_settings_say():
    trace = tracer.load(OLDER)
    for one in trace.runs:
        assert one.key == {
            "executor": "onnxruntime",
            "batch": one.batch,
            "threads": trace.settings["threads"] or None,
            "optimization": trace.settings["optimization"],
            "phase": None,
            "past": None,
        }
    assert sum(len(rows_of(trace, one)) for one in trace.runs) == len(trace.nodes)
    assert list(Run.KEY) == KEY
