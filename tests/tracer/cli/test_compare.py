"""`tracer compare` as a user meets it."""

import csv
import io
import json
from dataclasses import replace
from xml.etree import ElementTree

import junitparser
import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer.cli
from tests.graphs import parse, residual
from tracer import compare
from tracer.api.compare import SideSettings
from tracer.storage import trace_file

RECORDED = "tests/fixtures/traces/profile.trace"
QUICK = ("--threads", "1", "--sessions", "4", "--precision", "100%")


@pytest.fixture
def model(tmp_path):
    onnx.save(residual(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def run(capfd, *args):
    """Exit code, stdout and stderr of a command."""
    code = tracer.cli.main(["compare", *(str(arg) for arg in args)])
    out = capfd.readouterr()
    return code, out.out, out.err


@pytest.mark.nightly
def test_the_same_file_twice_writes_every_format(model, capfd, tmp_path):
    pytest.importorskip("matplotlib")
    names = ["c.json", "c.csv", "c.md", "c.png", "c.svg"]
    outputs = [part for name in names for part in ("-o", tmp_path / name)]
    code, out, err = run(capfd, model, model, *QUICK, *outputs)
    assert code == 0
    assert "By layer" in out and "is within tolerance" in out
    for name in names:
        assert (tmp_path / name).stat().st_size > 100
        assert f"wrote {tmp_path / name}" in err
    ElementTree.parse(tmp_path / "c.svg")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_json_has_everything_and_is_alone_on_stdout(model, capfd):
    code, out, _ = run(capfd, f"{model}@ort:none", model, *QUICK, "--json")
    comparison = json.loads(out)
    assert code == 0
    assert [side["letter"] for side in comparison["sides"]] == ["a", "b"]
    assert [len(side["sessions_us"]) for side in comparison["sides"]] == [4, 4]
    assert len(comparison["totals"]) == 2
    nodes = [
        name for layer in comparison["layers"] for name in layer["nodes_a"].split("; ") if name
    ]
    assert len(set(nodes)) == len(nodes) == len(residual().graph.node)
    assert comparison["numbers"][0]["first_divergence"] is None


def test_csv_is_the_table_of_layers(model, capfd):
    side = f"{model}@ort:none"  # without kernels of the runtime, which have no MACs
    _, out, _ = run(capfd, side, side, *QUICK, "--csv", "--by", "op", "--top", "1")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["op"] and row["on"] == "AB"
    assert float(row["macs_a"]) == float(row["macs_b"])


@pytest.mark.nightly
def test_several_batches_are_compared_with_each_other(model, capfd, tmp_path):
    pytest.importorskip("matplotlib")
    chart = tmp_path / "s.svg"
    code, out, _ = run(capfd, model, "--batch", "1,4", *QUICK, "-o", chart)
    assert code == 0
    assert "µs/sample @4" in out and "work to @4" in out
    ElementTree.parse(chart)
    _, out, _ = run(capfd, model, "--batch", "1,4", *QUICK, "--json")
    (one,) = json.loads(out)["sweeps"]
    assert one["batches"] == [1, 4]
    whole = [row for row in one["operators"] if row["op"] == "(whole run)"]
    assert [row["batch"] for row in whole] == [1, 4]


@pytest.mark.nightly
def test_several_numbers_of_threads_are_sides_that_take_turns(model, capfd):
    code, out, _ = run(capfd, model, *QUICK, "--threads", "1,2", "--by", "model", "--json")
    assert code == 0
    comparison = json.loads(out)
    labels = [side["label"] for side in comparison["sides"]]
    assert labels == ["m.onnx (1 thread)", "m.onnx (2 threads)"]
    session, seen = ort.InferenceSession, []

    def opened(path, sess_options=None, **more):
        seen.append(sess_options.intra_op_num_threads)
        return session(path, sess_options, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ort, "InferenceSession", opened)
        settings = SideSettings(sessions=2, precision=1.0)
        compare([str(model)], by="model", settings=settings, threads=(1, 2), in_process=True)
    assert set(seen) == {1, 2}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("width", [80, 160])
def test_no_line_is_wider_than_the_terminal(model, capfd, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run(capfd, f"{model}@ort:none", model, f"{model}@interpreter", *QUICK)
    assert max(map(len, out.splitlines())) <= width
    assert "C ÷ A" in out


@pytest.fixture
def recorded(tmp_path):
    """Saved traces whose runs take 100 µs, and so many times as long."""
    trace = tracer.profile(residual(), runs=4, threads=1)
    shaken = 100 + np.random.default_rng(0).normal(size=90)

    def saved(name, factor):
        run = replace(trace.runs[0], wall_us=shaken * factor, use=None)
        (tmp_path / name).write_bytes(trace_file.dumps(replace(trace, runs=(run,))))
        return tmp_path / name

    return saved


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("factor", "code", "verdict"), [(1.2, 1, "FAIL"), (1.02, 0, "pass"), (0.5, 0, "pass")]
)
def test_the_gate_says_one_line_and_sets_the_exit_code(recorded, capfd, factor, code, verdict):
    old, new = recorded("old.trace", 1), recorded("new.trace", factor)
    exit_code, out, err = run(capfd, old, new, "--fail-above", "5%")
    assert exit_code == code
    (line,) = err.splitlines()
    assert line.startswith(f"{verdict}: new.trace is {abs(factor - 1):.1%}")
    assert "By layer" in out


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("factor", "code", "verdict"), [(1.03, 1, "FAIL"), (1.0, 0, "pass")])
def test_a_side_that_is_not_shown_to_be_as_fast_fails(recorded, capfd, factor, code, verdict):
    old, new = recorded("old.trace", 1), recorded("new.trace", factor)
    exit_code, _, err = run(capfd, old, new, "--fail-unless-within", "2%")
    assert exit_code == code
    assert err.startswith(f"{verdict}: new.trace is ")
    assert "allowed ±2.0%" in err


def test_a_summary_for_ci_begins_with_the_verdicts(recorded, capfd, tmp_path):
    old, new = recorded("old.trace", 1), recorded("new.trace", 1.2)
    names = ["summary.md", "speed.junit.xml", "all.json"]
    outputs = [part for name in names for part in ("-o", tmp_path / name)]
    gates = ("--fail-above", "5%", "--fail-unless-within", "30%")
    code, _, err = run(capfd, old, new, *gates, *outputs)
    assert code == 1
    title, _, first, second, *_ = (tmp_path / "summary.md").read_text().splitlines()
    assert title == "### Whole runs, without profiler"
    assert first.startswith("- FAIL: new.trace is 20.0% slower") and second.startswith("- pass: ")
    suites = junitparser.JUnitXml.fromfile(str(tmp_path / "speed.junit.xml"))
    (suite,) = suites
    assert (suite.tests, suite.failures, suite.errors) == (2, 1, 0)
    failed, passed = suite
    assert (failed.classname, failed.name) == ("time", "new.trace --fail-above 5%")
    assert "20.0% slower" in failed.result[0].message
    assert not passed.result
    verdicts = json.loads((tmp_path / "all.json").read_text())["verdicts"]
    assert [(each["gate"], each["outcome"]) for each in verdicts] == [
        ("--fail-above 5%", "FAIL"), ("--fail-unless-within 30%", "pass"),
    ]  # fmt: skip
    assert [line for line in err.splitlines() if not line.startswith("wrote")] == [
        each["line"] for each in verdicts
    ]


@pytest.mark.nightly
def test_values_that_differ_are_a_failed_test(model, capfd, tmp_path):
    proto = onnx.load(model)
    weight = proto.graph.initializer[0]
    array = onnx.numpy_helper.to_array(weight)
    weight.CopyFrom(onnx.numpy_helper.from_array(array * 2, weight.name))
    onnx.save(proto, tmp_path / "other.onnx")
    target = tmp_path / "t.junit.xml"
    code, _, _ = run(capfd, model, tmp_path / "other.onnx", *QUICK, "-o", target)
    assert code == 1
    (suite,) = junitparser.JUnitXml.fromfile(str(target))
    speed, numbers = suite
    assert (speed.classname, numbers.classname) == ("time", "values")
    assert not speed.result  # without a gate
    assert "compute" in numbers.result[0].message


@pytest.mark.nightly
def test_networks_with_nothing_in_common(model, capfd, tmp_path):
    text = '<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] y) { y = Erf (x) }'
    onnx.save(parse(text), tmp_path / "other.onnx")
    code, out, err = run(capfd, model, tmp_path / "other.onnx", *QUICK)
    assert (code, out) == (3, "")
    assert (
        "too little in common" in err and "tracer compare --by model" in err
    )  # bisect has no --by
    code, out, _ = run(capfd, model, tmp_path / "other.onnx", *QUICK, "--by", "model")
    assert code == 0
    assert "other.onnx" in out and "By layer" not in out


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["{m}"], 2, "one side alone"),
        (["{m}", "{m}", "--fail-above", "5"], 2, "not a percentage"),
        (["{m}", "{m}", "--fail-above", "much%"], 2, "not a percentage"),
        (["{m}", "{m}", "--fail-above", "-5%"], 2, "not a percentage"),
        (["{m}", "{m}", "--batch", "1,2", "--fail-above", "5%"], 2, "Give one --batch"),
        (["{m}", "{m}", "--batch", "1,2", "--fail-unless-within", "5%"], 2, "Give one --batch"),
        (["{m}", "{m}", "--batch", "1,2", "--rtol", "1"], 2, "--rtol is for sides"),
        (["{m}", "{m}", "--batch", "1,2", "--by", "op"], 2, "--by is for sides"),
        (["{m}", "{m}", "--no-numbers", "--rtol", "1"], 2, "--rtol is for values"),
        (["{m}", "{m}", "--by", "model", "--atol", "1"], 2, "--atol is for values"),
        (["{m}", "{m}", "--data-dir", "."], 2, "--data-dir is for a data set"),
        (["{m}", "--batch", "1,2", "--threads", "1,2"], 2, "several batch sizes and several"),
        (["{m}", RECORDED, "--threads", "1,2"], 2, "recorded traces are not compared at several"),
        (["{m}", "none.trace"], 3, "no such trace"),
        (["{m}", ""], 3, "'': no such file"),
        (["{m}", "{m}@tpu"], 2, "no executor 'tpu'"),
        (["{m}", "{m}", "-o", "c.trace"], 2, "names no format"),
        (["{m}", "{m}", "--sessions", "1"], 2, "--sessions"),
    ],
)
def test_bad_input_is_one_line(model, capfd, args, code, message):
    exit_code, out, err = run(capfd, *(arg.format(m=model) for arg in args))
    assert (exit_code, out) == (code, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_hostile_name_reaches_no_terminal_and_no_cell(capfd, tmp_path):
    proto = residual()
    proto.graph.node[0].name = "=1+\x1b[31m|<b>"
    onnx.save(proto, tmp_path / "h.onnx")
    path = tmp_path / "h.onnx"
    _, out, _ = run(capfd, path, path, *QUICK, "-o", tmp_path / "h.md", "-o", tmp_path / "h.csv")
    assert "\x1b[31m" not in out
    assert "\x1b" not in (tmp_path / "h.md").read_text() + (tmp_path / "h.csv").read_text()
    assert "<b>" not in (tmp_path / "h.md").read_text()


@pytest.mark.nightly
def test_modules_are_compared_at_a_depth_and_told_what_they_hold(capfd, tmp_path):
    from models import families

    twins = [families.shipped("resnet_cifar", framework) for framework in families.FRAMEWORKS]
    args = (*twins, *QUICK, "--by", "module", "--depth", "1", "--no-numbers")
    code, out, _ = run(capfd, *args, "--csv")
    rows = {row["module"]: row for row in csv.DictReader(io.StringIO(out))}
    assert code == 0
    assert set(rows) - {"(runtime)"} == {"conv", "stage1", "stage2", "stage3", "fc", "(root)"}
    assert rows["conv"]["also_holds"] == "bn; (root)"
    assert rows["stage2"]["also_holds"] == ""
    assert float(rows["stage2"]["macs_a"]) == float(rows["stage2"]["macs_b"]) > 0
    code, out, _ = run(capfd, *args)
    assert code == 0 and "node_Conv" not in out


def test_a_depth_of_layers_is_a_usage_error(model, capfd):
    code, _, err = run(capfd, model, model, "--depth", "2")
    assert (code, err.count("\n")) == (2, 1)
    assert "--by module" in err


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("side", "args", "idle"),
    [
        ("r.trace", ("--inputs", "nope.npz"), "--inputs"),
        ("r.trace", ("--backward",), "--backward"),
        ("r.trace", ("--sessions", "4", "--threads", "1"), "--sessions, --threads"),
        ("r.trace", ("--batch", "1,2", "--seed", "3"), "--seed"),
        ("{m}", ("--backward",), "--backward"),
        ("{m}", ("--arg", "depth=8", "--weights", "w.npz"), "--arg, --weights"),
        ("{m}@ort:none", ("--optimization", "none"), "--optimization"),
    ],
)
def test_an_option_that_no_side_heeds_is_refused(
    recorded, model, capfd, monkeypatch, tmp_path, side, args, idle
):
    recorded("r.trace", 1)
    monkeypatch.chdir(tmp_path)
    side = side.format(m=model)
    code, out, err = run(capfd, side, side, *args)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{idle} would do nothing" in err


def test_options_of_one_kind_of_side_are_used_where_another_kind_is_beside_it(recorded, model):
    from tracer.api.compare import SideSettings
    from tracer.api.compare.naming import parse, refuse_unused

    sides = [parse(str(recorded("r.trace", 1))), parse(str(model))]
    refuse_unused(sides, SideSettings(seed=3, optimization="none", sessions=4))


def test_the_gate_calls_equal_times_equal(recorded, capfd):
    old = recorded("old.trace", 1)
    code, _, err = run(capfd, old, recorded("new.trace", 1), "--fail-above", "5%")
    assert code == 0
    assert err.startswith("pass: new.trace is as fast as old.trace (between ")


HALVES = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 64] x) => (float[1, 64] y) <float16[64, 64] h> {
        a = Cast <to = 10> (x)
        b = MatMul (a, h)
        y = Cast <to = 1> (b) }"""
SINGLES = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 64] x) => (float[1, 64] y) <float[64, 64] w> { y = MatMul (x, w) }"""


def test_a_product_in_halves_behind_float_outputs_has_the_tolerance_of_halves(capfd, tmp_path):
    weights = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    onnx.save(parse(SINGLES, w=weights), tmp_path / "a.onnx")
    onnx.save(parse(HALVES, h=weights.astype(np.float16)), tmp_path / "b.onnx")
    code, out, _ = run(capfd, tmp_path / "a.onnx", tmp_path / "b.onnx", *QUICK)
    assert (code, "computes something else" in out) == (0, False)
    onnx.save(parse(HALVES, h=(1.02 * weights).astype(np.float16)), tmp_path / "b.onnx")
    assert run(capfd, tmp_path / "a.onnx", tmp_path / "b.onnx", *QUICK)[0] == 1
