"""Models tuned as a user would: what is found is large enough to be measured on any machine."""

import json
import shlex

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer
import tracer.cli
from tests.examples import at_night
from tests.graphs import parse, residual
from tests.tracer.tuning.test_changes import COMPUTED_SHAPE
from tests.tracer.tuning.told import Bench, findings
from tracer.analyzers import views
from tracer.containment import signals
from tracer.tuning import plan as plans
from tracer.tuning.candidates import OnnxruntimeBench
from tracer.tuning.setup import peak_bytes

FOLDED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[64,64] x) => (float[64,64] y) {
  a = MatMul (w, w)  b = MatMul (a, w)  c = MatMul (b, w)  d = MatMul (c, w)
  s = Slice (d, begin, end)  y = Add (x, s)
}
"""


def folded():
    """Products of weights, which take some thousand times as long as the rest if not folded."""
    w = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32) / 23
    return parse(FOLDED, w=w, begin=np.array([0, 0]), end=np.array([64, 64]))


@pytest.mark.nightly
def test_products_that_are_not_folded_are_found_and_their_code_runs(tmp_path):
    result = tracer.tune(
        folded(), threads=1, optimization="none", only=["optimization"], max_seconds=12,
    )  # fmt: skip
    (name, value), *_ = result.plan.steps
    assert (name, value) in (("optimization", "extended"), ("optimization", "all"))
    assert result.speedup.low > 5
    assert result.memory_bytes is None or result.memory_bytes > 0
    saved = result.save(tmp_path / "best.plan.json")
    assert plans.read_plan(saved) == result.plan
    lines = "\n".join(result.code).replace('"<model in memory>"', "model.SerializeToString()")
    scope = {"model": folded()}
    exec(lines, scope)
    x = np.ones((64, 64), np.float32)
    (y,) = scope["session"].run(None, {"x": x})
    assert y.shape == (64, 64)
    for extension in ("json", "csv", "md"):
        text = views.render(result, extension).decode()
        assert "optimization" in text and "kept" in text


@pytest.mark.parametrize("goal", at_night(["latency", "throughput", "memory"], but=["throughput"]))
def test_every_goal_has_a_table_and_a_plan(goal, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signals, "limit_seconds", lambda seconds: None)  # a machine may be busy
    onnx.save(residual(), "net.onnx")
    arguments = ["tune", "net.onnx", "--goal", goal, "--max-seconds", "2", "--threads", "1",
                 "--try", "memory_pattern,batch,static_int8", "--save", "best.json",
                 "-o", "all.json", "-o", "tuned.onnx"]  # fmt: skip
    assert tracer.cli.main(arguments) == 0
    out, err = capfd.readouterr()
    assert f" for {goal}\n" in out
    assert "needs --allow quantize" in out
    assert any(line.startswith(" batch ") for line in out.split("\n")) == (goal == "throughput")
    assert "tuned.onnx is not written: no change of the model was kept" in err
    assert plans.read_plan(tmp_path / "best.json").goal == goal
    document = json.loads((tmp_path / "all.json").read_text())
    assert document["settings"]["goal"] == goal and document["trials"]
    assert tracer.cli.main(["profile", "net.onnx", "--plan", "best.json", "--runs", "2", "-v"]) == 0
    assert "tuned: " in capfd.readouterr().out


@pytest.mark.nightly
def test_a_changed_model_is_written_and_computes_what_the_table_says(tmp_path, monkeypatch):
    def cost(setup):
        packed = any(node.op_type == "MatMulNBits" for node in setup.model.graph.node)
        return 50 if packed else 100

    monkeypatch.setattr(OnnxruntimeBench, "race", Bench(cost).race)
    float_model = parse(WEIGHTS, w=np.random.default_rng(0).random((2048, 2048), np.float32) - 0.5)
    target, x = tmp_path / "tuned.onnx", np.ones((1, 2048), np.float32)
    asked = {"threads": 1, "only": ["weights_4bit"], "max_seconds": 60}
    assert tracer.tune(float_model, **asked).proto is None
    result = tracer.tune(float_model, **asked, allow=["quantize"], output=target)
    assert result.plan.steps[0][0] == "weights_4bit"
    assert result.speedup.ratio == pytest.approx(2, rel=0.05)
    assert "tracer quantize '<model in memory>' --weights 4" in result.commands[0]
    wide, narrow = (
        ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for model in (float_model.SerializeToString(), target.read_bytes())
    )
    assert 0.3 < result.difference / (np.abs(wide - narrow).max() / np.abs(wide).max()) < 3


@pytest.mark.nightly
def test_the_command_that_is_printed_makes_the_model_that_was_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(parse(COMPUTED_SHAPE), "net.onnx")
    monkeypatch.setattr(OnnxruntimeBench, "race", Bench(is_folded_cost).race)
    result = tracer.tune("net.onnx", dims={"N": 3}, only=["folding"], max_seconds=60, threads=1,
                         in_process=True)  # fmt: skip
    (command,) = result.commands
    assert command == "tracer tune net.onnx --apply folding=shapes --dim N=3 -o tuned.onnx"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert tracer.cli.main(shlex.split(command)[1:]) == 0
    assert onnx.load("tuned.onnx") == result.proto


def is_folded_cost(setup):
    return 100 if any(node.op_type == "Shape" for node in setup.model.graph.node) else 50


def test_what_is_applied_is_not_measured(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual(), "net.onnx")
    monkeypatch.setattr(OnnxruntimeBench, "race", None)
    arguments = ["tune", "net.onnx", "--apply", "static_int8=u8u8,threads=1", "-o", "small.onnx"]
    assert tracer.cli.main(arguments) == 0
    out, _ = capfd.readouterr()
    assert "net.onnx · changes made, not measured" in out
    assert "static_int8=u8u8, threads=1" in out
    assert "options.intra_op_num_threads = 1" in out
    ops = {node.op_type for node in onnx.load("small.onnx").graph.node}
    assert "QuantizeLinear" in ops


def test_a_page_of_forms_that_were_not_measured_says_so(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual(), "net.onnx")

    def race(bench, setups, seconds, is_enough):
        up = signals.TimeUp()
        signals._received.append(up)
        raise up

    monkeypatch.setattr(OnnxruntimeBench, "race", race)
    arguments = ["tune", "net.onnx", "--threads", "1", "--try", "memory_pattern,threads", "-v"]
    assert tracer.cli.main(arguments) == 0
    out = capfd.readouterr().out
    assert "net.onnx · no form of a change measured for latency" in out
    assert "nothing was measured, so the unchanged model is kept" in out
    assert "incomplete: out of time; none of " in out and " were measured" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apply", "folding"], "'folding' is no change and its form"),
        (["--apply", "warp=9"], "there is no change 'warp'"),
        (["--apply", "threads=many"], "threads=many"),
        (["--apply", "weights_4bit=level 4"], "--apply weights_4bit=level 4: failed"),
        (["--try", "warp"], "there is no change 'warp'"),
        (["--allow", "magic"], "magic"),
        (["-o", "a.onnx", "-o", "b.onnx"], "one .onnx file"),
        (["--max-seconds", "-1"], "range x>=0"),
    ],
)
def test_what_cannot_be_asked_is_said(arguments, message, capfd):
    assert tracer.cli.main(["tune", "models/lenet/lenet.onnx", *arguments]) == 2
    assert message in capfd.readouterr().err


WEIGHTS = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,2048] x) => (float[1,2048] y) { y = MatMul (x, w) }
"""


@pytest.mark.nightly
def test_the_memory_of_a_session_holds_its_weights_at_least():
    setup = findings(parse(WEIGHTS, w=np.ones((2048, 2048), np.float32))).setup
    nbytes = peak_bytes(setup)
    if nbytes is None:
        pytest.skip("the system does not tell the memory of a process")
    assert 16 << 20 <= nbytes < 160 << 20
