"""Which runs of a profile count: whole ones, whose durations can be."""

import json
from itertools import product

import numpy as np
import pytest

from tests.examples import at_night
from tests.formats.foreign_profiles import BODIES, FEEDS, named, of_kernels, profiled, written
from tests.graphs import parse
from tracer.api.results import load_result
from tracer.errors import InputError

CPU = "CPUExecutionProvider"
KERNELS = [("a", "Conv", CPU, 100, 0), ("b", "Relu", CPU, 10, 1), ("c", "Conv", CPU, 200, 2)]

FAILING = """<ir_version: 8, opset_import: ["" : 17]>
failing (float[4] x, int64[1] i, bool flag) => (float[M] y) {
  a = Relu (x)
  b = If (flag) <
    then_branch = yes () => (float[1] u) { u0 = Tanh (a)  u = Gather (u0, i) },
    else_branch = no () => (float[1] v) { v = Gather (a, i) }
  >
  c = Tanh (b)
  y = Sigmoid (c)
}"""


def runs_of(events):
    """Start of each run -> its duration and the positions of the events in it."""
    spans = {e["ts"]: e["ts"] + e["dur"] for e in events if e["name"] == "model_run"}
    inside = {
        start: [n for n, e in enumerate(events) if start <= e["ts"] <= end and e["cat"] == "Node"]
        for start, end in sorted(spans.items())
    }
    return {start: (spans[start] - start, each) for start, each in inside.items()}


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """Runs of Loops and an If; a node ends in its run, whatever a clock that is set anew wrote."""
    folder = tmp_path_factory.mktemp("runs")
    path = profiled(named(parse(BODIES), "none"), FEEDS, folder, "none", runs=4)
    events = json.loads(path.read_text())
    for start, (took, inside) in runs_of(events).items():
        for event in (events[number] for number in inside):
            event["dur"] = min(event["dur"], start + took - event["ts"])
    return events


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("by_start", "is_one_line"),
    at_night(product((True, False), repeat=2), but=[(True, True), (False, False)]),
)
def test_a_file_that_is_cut_off_counts_its_whole_runs(events, by_start, is_one_line, tmp_path):
    """onnxruntime wrote what ended first, and later versions write what began first."""
    if by_start:
        events = sorted(events, key=lambda e: (e["ts"], -e["dur"]))
    texts = [json.dumps(each) for each in events]
    text = "[" + (", " if is_one_line else ",\n").join(texts) + "]\n"
    ends = np.cumsum([1 + len(texts[0]), *(2 + len(each) for each in texts[1:])])
    written_runs = runs_of(events)
    for cut in [*range(len(text) // 3, len(text) - 2, 4001), *ends[-9:-1], *(ends[-9:-1] + 1)]:
        (tmp_path / "cut.json").write_text(text[:cut])
        last = int(np.searchsorted(ends, cut, side="right")) - 1
        ran = [(took, n) for start, (took, n) in written_runs.items()
               if events.index(_run(events, start)) <= last]  # fmt: skip
        whole = [took for took, n in ran if max(n) <= last]
        if not whole or (by_start and len(ran) == 1):
            with pytest.raises(InputError, match="no whole run"):
                load_result(tmp_path / "cut.json")
            continue
        trace = load_result(tmp_path / "cut.json")
        assert trace.runs[0].wall_us.tolist() == (whole[1:] or whole)
        assert any("cut.json is cut off" in note for note in trace.notes)


def _run(events, start):
    return next(e for e in events if e["name"] == "model_run" and e["ts"] == start)


def test_a_run_without_an_end_adds_nothing_to_the_run_before(events, tmp_path):
    last = max(e["ts"] for e in events if e["name"] == "model_run")
    kept = [e for e in events if e["name"] != "model_run" or e["ts"] < last]
    whole = load_result(written(events, tmp_path / "whole.json")).runs[0]
    trace = load_result(written(kept, tmp_path / "p.json"))
    assert trace.runs[0].samples.tolist() == whole.samples[:-1].tolist()
    count = len(runs_of(events)[last][1])
    assert any(
        note.startswith(f"{count} events of kernels are in no whole") for note in trace.notes
    )


@pytest.mark.parametrize("flag", [True, False])
def test_runs_that_failed_are_left_out(flag, tmp_path):
    """The third ends in the Gather of a body, after what ran before it."""
    model = parse(FAILING)

    def feeds(run):
        return {"x": np.ones(4, np.float32), "flag": np.array(flag),
                "i": np.array([9 if run == 2 else 1])}  # fmt: skip

    path = profiled(model, feeds, tmp_path, "none", runs=5)
    events = json.loads(path.read_text())
    took = [each for each, _ in runs_of(events).values()]
    trace = load_result(path)
    assert trace.runs[0].wall_us.tolist() == [took[1], *took[3:]]
    assert any(note.startswith("1 of 5 runs did not finish") for note in trace.notes)
    assert set(trace.nodes["calls"]) == {1}


def test_runs_of_several_threads_keep_their_kernels(tmp_path):
    """A second thread makes the same runs, each begun in the middle of one of the first."""
    path = of_kernels(KERNELS, tmp_path / "p.json")
    alone = load_result(path).runs[0]
    events = json.loads(path.read_text())
    later = [{**each, "tid": 10, "ts": each["ts"] + 150} for each in events]
    (run,) = load_result(written([*events, *later], path)).runs
    assert run.samples.tolist() == [[100, 10, 200]] * 7  # all but the first
    assert run.wall_us.tolist() == [alone.wall_us[0]] * 7


def test_threads_that_compute_nodes_of_a_run_are_part_of_it(tmp_path):
    path = profiled(parse(BODIES), FEEDS, tmp_path, "none", runs=4, parallel=True)
    count = sum(e["cat"] == "Node" for e in json.loads(path.read_text()))
    trace = load_result(path)
    assert sum(trace.nodes["calls"]) == count / 4
    assert len(trace.runs[0].wall_us) == 3


@pytest.mark.parametrize("took", [-7, 10**9, 2**62, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize(
    ("name", "run"), [("b_kernel_time", 2), ("model_run", 2), ("model_run", 3)]
)
def test_durations_that_cannot_be_are_named_and_their_runs_left_out(name, run, took, tmp_path):
    path = of_kernels(KERNELS, tmp_path / "p.json")
    whole = load_result(path).runs[0].wall_us.tolist()
    events = json.loads(path.read_text())
    [e for e in events if e["name"] == name][run]["dur"] = took
    trace = load_result(written(events, path))
    assert trace.runs[0].wall_us.tolist() == whole[: run - 1] + whole[run:]
    assert trace.nodes["time_us"].tolist() == [100, 10, 200]
    text = f"1 of {name.removesuffix('_kernel_time')} ({took:,} µs)"
    assert any("durations that cannot be" in note and text in note for note in trace.notes)


def test_impossible_durations_of_every_run_count_as_0(tmp_path):
    path = of_kernels([*KERNELS[:2], ("c", "Conv", CPU, -3, 2)], tmp_path / "p.json")
    trace = load_result(path)
    assert len(trace.runs[0].wall_us) == 3
    assert trace.runs[0].samples.tolist() == [[100, 10, 0]] * 3
    assert any("4 of c (-3 µs)" in note for note in trace.notes)


def test_a_last_run_that_waited_for_a_processor_is_a_run(tmp_path):
    """Nothing follows it: a program that lost its processor there wrote 12 ms in a file of 1."""
    path = of_kernels(KERNELS, tmp_path / "p.json")
    events = json.loads(path.read_text())
    events[-1]["dur"] += 12_000
    trace = load_result(written(events, path))
    assert trace.runs[0].wall_us.tolist() == [322, 322, 12_322]
    assert not any("cannot be" in note for note in trace.notes)
