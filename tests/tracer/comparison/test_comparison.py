"""Sides as a user names them, the turns they take, and what is said of them."""

import importlib.util
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import ModuleType

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer
from tests.graphs import in_float16, residual
from tracer.api import compare
from tracer.api.compare import SideSettings, values
from tracer.api.compare.naming import parse, with_short_labels
from tracer.api.compare.sides import Recorded
from tracer.containment import signals
from tracer.errors import InputError, UsageError
from tracer.executors import registry
from tracer.executors.measuring import Recorder, RunTimes
from tracer.executors.onnxruntime.feeding import PlainSession
from tracer.graph.loading import open_model
from tracer.inputs.request import make_feeds
from tracer.storage import trace_file
from tracer.support.tolerance import Tolerance

QUICK = SideSettings(threads=1, sessions=4, precision=1.0)


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
    with pytest.raises(UsageError, match="--no-build-isolation chainer"):
        parse("net.py:Net@chainer")


def test_sides_are_called_by_their_files_where_those_differ():
    sides = [Recorded(name, None) for name in ("x/a.trace", "y/b.trace")]
    assert [side.label for side in with_short_labels(sides)] == ["a.trace", "b.trace"]
    sides = [Recorded(name, None) for name in ("x/a.trace", "y/a.trace", "x/a.trace")]
    assert [side.label for side in with_short_labels(sides)] == [
        "x/a.trace", "y/a.trace", "x/a.trace #2",
    ]  # fmt: skip


def test_a_model_compared_with_itself_computes_the_same(model):
    comparison = compare.compare([model, model], settings=QUICK, tolerance=Tolerance())
    assert [side.label for side in comparison.sides] == ["m.onnx", "m.onnx #2"]
    (numbers,) = comparison.numbers
    assert numbers.first_divergence is None
    assert numbers.outputs["max_abs"].tolist() == [0]
    assert len(numbers.layers) == len(residual().graph.node)
    assert set(comparison.layers["on"]) == {"AB"}
    assert [len(side.turns_us) for side in comparison.sides] == [4, 4]
    assert comparison.sums[0].side == "m.onnx #2"


def test_models_in_memory_are_sides_with_the_names_of_their_graphs(model):
    ours, other = residual(), residual()
    other.graph.name = "newer"
    sides = [ours, other, open_model(model), ours]
    comparison = tracer.compare(sides, settings=QUICK, by="model", tolerance=Tolerance())
    name = ours.graph.name
    labels = [side.label for side in comparison.sides]
    assert labels == [name, "newer", "m.onnx", f"{name} #2"]
    assert [numbers.differ for numbers in comparison.numbers] == [False] * 3
    assert tracer.compare_bits([ours, model]).is_equal
    with pytest.raises(InputError, match="no such file"):
        tracer.compare([ours, "none.onnx"])


def test_other_weights_are_a_divergence_and_its_first_layer_is_named(model, tmp_path):
    changed = onnx.load(model)
    weight = next(w for w in changed.graph.initializer if w.name == "w2")
    values = onnx.numpy_helper.to_array(weight).copy()
    values.flat[0] += 1
    weight.CopyFrom(onnx.numpy_helper.from_array(values, "w2"))
    onnx.save(changed, tmp_path / "changed.onnx")
    sides = [model, str(tmp_path / "changed.onnx")]
    comparison = compare.compare(sides, settings=QUICK, tolerance=Tolerance())
    second = [node.key for node in open_model(model).nodes if node.op_type == "Conv"][1]
    assert comparison.numbers[0].first_divergence == second


def test_the_interpreter_agrees_with_onnxruntime_layer_by_layer(model):
    sides = [f"{model}@ort:none", f"{model}@interpreter"]
    comparison = compare.compare(sides, settings=QUICK, tolerance=Tolerance())
    assert [side.run.executor for side in comparison.sides] == ["onnxruntime", "reference"]
    assert comparison.numbers[0].first_divergence is None


@pytest.mark.parametrize("narrow", [0, 1])
def test_a_model_in_float16_is_compared_on_the_same_inputs(model, tmp_path, narrow):
    """Of 16 bits, each layer differs by what float16 rounds: that is no divergence."""
    half = str(tmp_path / "half.onnx")
    onnx.save(in_float16(onnx.load(model)), half)
    sides = [model, half] if narrow else [half, model]
    comparison = compare.compare(sides, settings=QUICK, tolerance=Tolerance())
    (numbers,) = comparison.numbers
    assert numbers.first_divergence is None
    x = make_feeds(open_model(sides[0])).feeds["x"]
    types = [np.float32, np.float16] if narrow else [np.float16, np.float32]
    results = [
        ort.InferenceSession(side).run(None, {"x": x.astype(dtype)})[0]
        for side, dtype in zip(sides, types, strict=True)
    ]
    first, second = results[0].astype(results[1].dtype).astype(np.float64), results[1]
    assert numbers.outputs["max_abs"].tolist() == pytest.approx([np.abs(first - second).max()])


def test_inputs_that_do_not_fit_are_a_note_and_no_failure(model, tmp_path):
    wide = residual()
    wide.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    wide.graph.input[0].name, wide.graph.node[0].input[0] = "z", "z"
    extra = onnx.helper.make_tensor_value_info("unused", onnx.TensorProto.FLOAT, [1])
    wide.graph.input.append(extra)
    onnx.save(wide, tmp_path / "wide.onnx")
    sides = [model, str(tmp_path / "wide.onnx")]
    comparison = compare.compare(sides, settings=QUICK, tolerance=Tolerance())
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
    settings = replace(QUICK, inputs=tmp_path / "in.npz")
    arguments = {"settings": settings, "tolerance": Tolerance(1e-6, 0.0)}
    result = tracer.compare([str(both), str(one)], **arguments)
    assert "one.onnx has no input more, which is left out there" in result.notes
    assert not result.differ  # x + x where more is x
    np.savez(tmp_path / "in.npz", other=x, x=x)
    with pytest.raises(InputError, match="more missing"):
        tracer.compare([str(both), str(one)], **arguments)


def test_saved_traces_are_said_not_to_have_taken_turns(saved, model):
    comparison = compare.compare([saved, model], settings=QUICK)
    assert any("recorded earlier, not alternating: m.trace" in note for note in comparison.notes)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("by", ["layer", "model"])
def test_models_too_large_to_be_open_together_take_a_turn_in_each_session(model, monkeypatch, by):
    monkeypatch.setattr("tracer.graph.stored_weights.is_large", lambda model: True)
    plain, opened = PlainSession.run, []

    def run(self):
        opened.extend([1] if self._run is None else [])
        return plain(self)

    monkeypatch.setattr(PlainSession, "run", run)
    comparison = tracer.compare([model, model], by=by, settings=QUICK, in_process=True)
    assert [len(side.turns_us) for side in comparison.sides] == [4, 4]
    assert {len(turns) for side in comparison.sides for turns in side.turns_us} == {1}
    assert {len(blocks) for side in comparison.sides for blocks in side.wall.sessions} == {1}
    assert sum(opened) >= 8
    assert any("too large for all sides at once" in note for note in comparison.notes)


def test_a_framework_side_is_profiled_by_the_api_and_compared(trace, model, monkeypatch):
    asked, timed = [], []

    def profile_framework(target, **options):
        asked.append((target, options))
        return trace

    def load_source(target, args, *, framework, **others):
        timed.append((target, framework, args))

    class Executor:
        def ready(self, model, inputs, settings):
            timed[-1] += (settings.backward,)
            return nullcontext(lambda: 100.0)

        def recording(self, model, inputs, settings):
            timed[-1] += (settings.backward,)
            run = trace.runs[0]
            names = [kernel.name for kernel in run.kernels]
            times, samples = [], []

            def record(runs):
                times.extend([110.0] * runs)
                samples.extend([run.samples[0]] * runs)

            read = lambda: RunTimes(names, np.array(samples), np.array(times))  # noqa: E731
            return nullcontext(Recorder(lambda: 100.0, record, read))

    monkeypatch.setattr("tracer.api.compare.sides.profile_framework", profile_framework)
    monkeypatch.setattr("tracer.api.compare.sides.load_source", load_source)
    find = registry.find_alternating
    of_name = lambda name: Executor() if name == "torch" else find(name)  # noqa: E731
    monkeypatch.setattr(registry, "find_alternating", of_name)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    settings = replace(QUICK, args={"depth": 20}, backward=True)
    comparison = compare.compare(["net.py:Net@torch", model], settings=settings)
    assert [side.label for side in comparison.sides] == ["net.py:Net@torch", "m.onnx"]
    target, options = asked[-1]
    assert (target, options["framework"], options["args"]) == ("net.py:Net", "torch", {"depth": 20})
    assert options["backward"] and options["runs"] == 5
    assert len(comparison.sides[0].turns_us) == 4
    assert timed[-1] == ("net.py:Net", "torch", {"depth": 20}, True)


@pytest.mark.nightly
def test_a_sweep_of_a_model_and_of_a_trace(model, tmp_path):
    (live,) = compare.sweep([model], [4, 1], settings=QUICK)
    assert live.batches == (1, 4)
    conv = live.table[live.table["op"].str.startswith("Conv")]
    assert conv[conv["batch"] == 4]["work_growth"].tolist() == [4.0] * (len(conv) // 2)
    path = tmp_path / "two.trace"
    path.write_bytes(trace_file.dumps(tracer.profile(residual(), batch=[1, 2], runs=2, threads=1)))
    (kept,) = compare.sweep([str(path)], [1, 2])
    assert kept.batches == (1, 2)


def test_the_end_of_the_time_leaves_what_was_measured(model, monkeypatch):
    def compare_values(*of):
        up = signals.TimeUp()
        signals._received.append(up)
        raise up

    monkeypatch.setattr(values, "compare_values", compare_values)
    comparison = compare.compare([model, model], settings=QUICK, tolerance=Tolerance())
    assert [len(side.turns_us) for side in comparison.sides] == [4, 4]
    assert not comparison.numbers and not comparison.is_incomplete and signals.ending() == ""
    assert "values were not compared: the time of limits.seconds ended" in comparison.notes
