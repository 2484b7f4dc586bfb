"""Plans: written, read, applied to a model, and compared with the machine they are used on."""

from dataclasses import replace

import msgspec
import pytest

import tracer
from tests.graphs import parse, residual
from tests.tracer.tuning.told import findings, machine
from tracer.errors import InputError, UsageError
from tracer.records.transformed import Speedup
from tracer.tuning import plan as plans
from tracer.tuning.changes import Step, find, ordered

STEPS = ordered([Step(find("threads"), "1"), Step(find("static_int8"), "u8s8")])


@pytest.fixture(scope="module")
def base():
    return findings(residual()).setup


@pytest.fixture
def plan(base):
    tuned = STEPS[1].change.apply(STEPS[0].change.apply(base, "u8s8"), "1")
    return plans.plan_of(base, tuned, STEPS, "latency", machine(), Speedup(2.0, 1.9, 2.1))


@pytest.fixture
def file(plan, tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    return path


def test_changes_of_the_model_come_before_those_of_settings():
    assert [str(step) for step in STEPS] == ["static_int8=u8s8", "threads=1"]


def test_a_plan_that_is_read_is_the_one_that_was_written(plan, file):
    assert plans.read_plan(file) == plan
    assert plan.steps == (("static_int8", "u8s8"), ("threads", "1"))
    assert plan.settings["threads"] == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": 1}', "\x00"])
def test_what_is_no_plan_is_refused(text, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"not a plan.*tracer tune MODEL --save"):
        plans.read_plan(path)


def test_a_plan_makes_the_setup_again(plan, base):
    again = plans.apply_plan(plan, base)
    assert again.settings.threads == 1
    assert "QuantizeLinear" in {node.op_type for node in again.model.graph.node}


@pytest.mark.parametrize("steps", [(("warp", "9"),), (("threads", "many"),)])
def test_a_plan_of_what_is_unknown_is_refused(steps, plan, base):
    with pytest.raises(UsageError, match=r"warp|threads=many"):
        plans.apply_plan(replace(plan, steps=steps), base)


def test_differences_from_the_plan_are_told(plan, base):
    assert plans.differences(plan, base, machine()) == ()
    other = replace(machine(cpus=8), cpu="Z80", onnxruntime="2.0")
    (note,) = plans.differences(replace(plan, sha256="0"), base, other)
    for words in ("another model", "another processor, told", "4 cores, not 8",
                  "onnxruntime 1.0, not 2.0", "tune again"):  # fmt: skip
        assert words in note


def test_a_profile_by_a_plan_measures_what_was_tuned(file):
    trace = tracer.profile(residual(), plan=file, runs=3, warmup=1)
    run = trace.runs[0]
    assert run.threads == 1
    assert any("QuantizeLinear" in kernel.op_type for kernel in run.kernels)
    assert trace.notes[0] == "tuned: static_int8=u8s8, threads=1"
    assert "the plan was made for another processor, told" in trace.notes[1]
    assert trace.settings["plan"] == str(file)


def test_sizes_that_a_plan_folds_may_be_given(plan, tmp_path):
    """The model of the plan has no other sizes, and the command that made the plan had these."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[1] y) {
        s = Shape (x)  f = Cast <to = 1> (s)  t = ReduceSum <keepdims = 1> (x)  y = Div (t, f)
    }"""
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(replace(plan, steps=(("folding", "shapes"),))))
    trace = tracer.profile(parse(text), plan=path, dims={"n": 8}, runs=2, warmup=1)
    assert trace.runs[0].inputs["x"] == "float32[8]"
    assert {kernel.op_type for kernel in trace.runs[0].kernels} == {"ReduceSum", "Div"}


@pytest.mark.nightly
def test_a_batch_of_the_plan_is_that_of_the_profile(plan, tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(replace(plan, steps=(("batch", "4"),))))
    assert tracer.profile(residual(), plan=path, runs=2, warmup=1).runs[0].batch == 4
    assert tracer.profile(residual(), plan=path, batch=2, runs=2, warmup=1).runs[0].batch == 2


@pytest.mark.parametrize("beside", [{"threads": [1, 2]}, {"batch": [1, 2]}, {"prefill": 4}])
def test_what_contradicts_a_plan_is_refused(beside, file):
    model = "models/llama/llama.onnx" if "prefill" in beside else residual()
    with pytest.raises(UsageError, match="a plan"):
        tracer.profile(model, plan=file, **beside)
