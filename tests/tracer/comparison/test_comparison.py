"""Sides as a user names them, the turns they take, and what is said of them."""

import importlib.util
import itertools
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType

import numpy as np
import onnx
import pytest

import tracer
from tests.graphs import residual
from tracer.api import compare
from tracer.api.compare import rounds
from tracer.api.compare.naming import parse, with_short_labels
from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import Recorded
from tracer.errors import InputError, UsageError
from tracer.graph.loading import open_model
from tracer.storage import trace_file
from tracer.support.progress import silent
from tracer.support.tolerance import Tolerance

QUICK = SideSettings(threads=1, warmup=0, sessions=4, precision=1.0)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(residual(), path)
    return str(path)


@pytest.fixture(scope="module")
def trace():
    return tracer.profile(residual(), runs=10, threads=1)


@pytest.fixture
def saved(trace, tmp_path):
    path = tmp_path / "m.trace"
    path.write_bytes(trace_file.dumps(trace))
    return str(path)


def test_a_side_is_what_its_name_says(model, saved):
    assert isinstance(parse(saved), Recorded)
    assert parse(model).optimization is None
    assert parse(f"{model}@ort").optimization is None
    assert parse(f"{model}@ort:basic").optimization == "basic"
    assert parse(f"{model}@interpreter").executor == "interpreter"


@pytest.mark.parametrize(
    ("suffix", "error", "message"),
    [
        ("@gpu", UsageError, "no executor 'gpu'"),
        ("@ort:fast", UsageError, "no optimization 'fast'"),
        ("@interpreter:basic", UsageError, "no executor"),
    ],
)
def test_an_executor_there_is_none_of_is_refused(model, suffix, error, message):
    with pytest.raises(error, match=message):
        parse(model + suffix)


def test_what_is_not_there_or_not_a_trace_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        parse(str(tmp_path / "none.onnx"))
    with pytest.raises(InputError, match=r"net\.py: no such file"):
        parse("net.py:Net")
    broken = tmp_path / "broken.trace"
    broken.write_text("not SQLite")
    with pytest.raises(InputError, match="not a trace"):
        parse(str(broken))


def test_a_framework_that_is_not_installed_names_the_extra(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda n: (n != "chainer" and find_spec(n)) or None
    )
    with pytest.raises(UsageError, match=r"tracer-onnx\[chainer\]"):
        parse("net.py:Net@chainer")


def test_sides_are_called_by_their_files_where_those_differ():
    sides = [Recorded(name, None) for name in ("x/a.trace", "y/b.trace")]
    assert [side.label for side in with_short_labels(sides)] == ["a.trace", "b.trace"]
    sides = [Recorded(name, None) for name in ("x/a.trace", "y/a.trace", "x/a.trace")]
    assert [side.label for side in with_short_labels(sides)] == [
        "x/a.trace", "y/a.trace", "x/a.trace #2",
    ]  # fmt: skip


class Fake:
    """A side whose runs take the time it is told, and which remembers its turns."""

    is_large = False

    def __init__(self, label, trace, walls, turns):
        self.label, self._trace, self._walls, self._turns = label, trace, iter(walls), turns

    def run(self, runs, settings, progress=None):
        self._turns.append(self.label)
        wall = next(self._walls)
        run = self._trace.runs[0]
        run = replace(run, wall_us=np.full(runs, wall), instrumented_us=run.instrumented_us * wall)
        return replace(self._trace, runs=(run,))

    def again(self, trace, runs, settings):
        return self.run(runs, settings)


def turns_of(sides, count, runs=None):
    """The traces of so many rounds, after the first turn of each side."""
    first, seconds = rounds.first_turns(sides, QUICK, runs)
    return rounds.take_turns(sides, QUICK, first, seconds, count, runs, silent)


def test_sides_take_turns_whose_order_turns_and_the_first_is_not_kept(trace):
    turns = []
    fakes = [Fake(name, trace, itertools.count(100.0), turns) for name in "ab"]
    traces = turns_of(fakes, 3, runs=4)
    assert "".join(turns) == "ab" + "ab" + "ba" + "ab"
    assert [[t.runs[0].wall_us[0] for t in side] for side in traces] == [[101, 102, 103]] * 2


def test_a_turn_lasts_as_long_as_it_should(trace):
    asked = []

    class Timed(Fake):
        def run(self, runs, settings, progress=None):
            asked.append(runs)
            return super().run(runs, settings, progress)

    for wall, runs in ((1.0, 100), (1000.0, 20), (1e6, 5)):
        asked.clear()
        turns_of([Timed("a", trace, itertools.repeat(wall), [])], 2)
        assert asked == [5, runs, runs]


def test_the_quieter_half_is_kept_and_favours_no_side(trace):
    walls = {"a": [10.0, 99.0, 10.0, 10.0, 10.0, 12.0, 10.0, 80.0, 50.0],
             "b": [20.0, 20.0, 20.0, 95.0, 21.0, 20.0, 20.0, 60.0, 90.0]}  # fmt: skip
    fakes = [Fake(name, trace, times, []) for name, times in walls.items()]
    traces = rounds.quieter(turns_of(fakes, 8, runs=2))
    kept = [[t.runs[0].wall_us[0] for t in side] for side in traces]
    assert kept == [[10, 10, 12, 10], [20, 21, 20, 20]]


def test_a_model_compared_with_itself_computes_the_same(model):
    comparison = compare.compare([model, model], settings=QUICK, rounds=4, runs=3,
                               tolerance=Tolerance())  # fmt: skip
    assert [side.label for side in comparison.sides] == ["m.onnx", "m.onnx #2"]
    (numbers,) = comparison.numbers
    assert numbers.first_divergence is None
    assert numbers.outputs["max_abs"].tolist() == [0]
    assert len(numbers.layers) == len(residual().graph.node)
    assert set(comparison.layers["on"]) == {"AB"}
    assert comparison.sides[0].rounds_us.shape[0] == 4


def test_other_weights_are_a_divergence_and_its_first_layer_is_named(model, tmp_path):
    changed = onnx.load(model)
    weight = next(w for w in changed.graph.initializer if w.name == "w2")
    values = onnx.numpy_helper.to_array(weight).copy()
    values.flat[0] += 1
    weight.CopyFrom(onnx.numpy_helper.from_array(values, "w2"))
    onnx.save(changed, tmp_path / "changed.onnx")
    comparison = compare.compare([model, str(tmp_path / "changed.onnx")], settings=QUICK, rounds=2,
                               runs=1, tolerance=Tolerance())  # fmt: skip
    second = [node.key for node in open_model(model).nodes if node.op_type == "Conv"][1]
    assert comparison.numbers[0].first_divergence == second


def test_the_interpreter_agrees_with_onnxruntime_layer_by_layer(model):
    comparison = compare.compare([f"{model}@ort:none", f"{model}@interpreter"], settings=QUICK,
                               rounds=2, runs=1, tolerance=Tolerance())  # fmt: skip
    assert [side.run.executor for side in comparison.sides] == ["onnxruntime", "reference"]
    assert comparison.numbers[0].first_divergence is None


def test_inputs_that_do_not_fit_are_a_note_and_no_failure(model, tmp_path):
    wide = residual()
    wide.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    wide.graph.input[0].name, wide.graph.node[0].input[0] = "z", "z"
    extra = onnx.helper.make_tensor_value_info("unused", onnx.TensorProto.FLOAT, [1])
    wide.graph.input.append(extra)
    onnx.save(wide, tmp_path / "wide.onnx")
    comparison = compare.compare([model, str(tmp_path / "wide.onnx")], settings=QUICK, rounds=2,
                               runs=1, tolerance=Tolerance())  # fmt: skip
    assert not comparison.numbers
    assert any("takes 2 inputs, not 1" in note for note in comparison.notes)


def test_an_array_that_one_side_takes_is_left_out_of_the_other_and_said(model, tmp_path):
    head = '<ir_version: 8, opset_import: ["": 16]> g (float[N,3,16,16] x'
    graphs = {
        "both.onnx": ", float[N,3,16,16] more) => (float[N,3,16,16] y) { y = Add (x, more) }",
        "one.onnx": ") => (float[N,3,16,16] y) { y = Add (x, x) }",
    }
    both, one = (tmp_path / name for name in graphs)
    for name, graph in graphs.items():
        onnx.save(onnx.parser.parse_model(head + graph), tmp_path / name)
    x = np.ones((2, 3, 16, 16), np.float32)
    np.savez(tmp_path / "in.npz", more=x, x=x)
    settings = replace(QUICK, feeds=tmp_path / "in.npz")
    arguments = {"settings": settings, "tolerance": Tolerance(1e-6, 0.0), "rounds": 2, "runs": 2}
    result = tracer.compare([str(both), str(one)], **arguments)
    assert "one.onnx has no input more, which is left out there" in result.notes
    assert not result.differ  # x + x where more is x
    np.savez(tmp_path / "in.npz", other=x, x=x)
    with pytest.raises(InputError, match="more missing"):
        tracer.compare([str(both), str(one)], **arguments)


def test_saved_traces_are_said_not_to_have_taken_turns(saved, model):
    comparison = compare.compare([saved, model], settings=QUICK, rounds=3, runs=2)
    assert any("recorded earlier, not alternating: m.trace" in note for note in comparison.notes)


def test_models_too_large_to_be_open_together_are_compared_by_rounds(model, monkeypatch):
    monkeypatch.setattr("tracer.graph.footprint.is_large", lambda model: True)
    comparison = compare.compare([model, model], by="model", settings=QUICK, rounds=4, runs=2)
    assert [side.wall.sessions for side in comparison.sides] == [None, None]
    assert [len(side.wall.rounds) for side in comparison.sides] == [4, 4]
    assert any("too large for all sides at once" in note for note in comparison.notes)


def test_a_framework_side_is_profiled_by_the_api_and_compared(trace, model, monkeypatch):
    asked, timed = [], []

    def profile_framework(target, **options):
        asked.append((target, options))
        return trace

    @contextmanager
    def ready(target, framework, args, weights, batch, settings, inputs):
        timed.append((target, framework, args, settings.backward))
        yield lambda: 100.0

    monkeypatch.setattr("tracer.api.compare.sides.profile_framework", profile_framework)
    monkeypatch.setattr("tracer.api.compare.sides.ready", ready)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    settings = replace(QUICK, arguments={"depth": 20}, backward=True)
    comparison = compare.compare(["net.py:Net@torch", model], settings=settings, rounds=3, runs=2)
    assert [side.label for side in comparison.sides] == ["net.py:Net@torch", "m.onnx"]
    target, options = asked[-1]
    assert (target, options["framework"], options["args"]) == ("net.py:Net", "torch", {"depth": 20})
    assert options["backward"] and options["runs"] == 2
    assert timed[-1] == ("net.py:Net", "torch", {"depth": 20}, True)


def test_a_sweep_of_a_model_and_of_a_trace(model, tmp_path):
    (live,) = compare.sweep([model], [4, 1], settings=QUICK, rounds=2, runs=2)
    assert live.batches == (1, 4)
    conv = live.table[live.table["op"].str.startswith("Conv")]
    assert conv[conv["batch"] == 4]["work_growth"].tolist() == [4.0] * (len(conv) // 2)
    path = tmp_path / "two.trace"
    path.write_bytes(trace_file.dumps(tracer.profile(residual(), batch=[1, 2], runs=2, threads=1)))
    (kept,) = compare.sweep([str(path)], [1, 2])
    assert kept.batches == (1, 2)
