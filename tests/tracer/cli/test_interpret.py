"""`tracer interpret` as a user meets it."""

import json

import numpy as np
import onnx
import pandas as pd
import pytest

import tracer
import tracer.cli
from tests.graphs import BRANCHES, DATA_DEPENDENT, parse, residual
from tests.interpreter.models import onnxruntime, parsed
from tracer.executors.reference import executor
from tracer.interpreter.interpreter import Interpreter


@pytest.fixture
def model(tmp_path):
    onnx.save(residual(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def run(capfd, *args):
    code = tracer.cli.main(["interpret", *(str(arg) for arg in args)])
    out = capfd.readouterr()
    return code, out.out, out.err


def test_every_node_and_output_is_shown(model, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    code, out, _ = run(capfd, model, "--notes")
    assert code == 0
    for word in (
        "Conv",
        "GlobalAveragePool",
        "float32",
        "mean",
        "inputs are random, floats from 0 to 1",
    ):
        assert word in out


def rows(out):
    return json.loads(out)["runs"][0]["nodes"]


def test_statistics_of_values_are_columns(model, capfd, tmp_path):
    code, out, _ = run(capfd, model, "--json", "-o", tmp_path / "out.npz")
    last = rows(out)[-1]
    with np.load(tmp_path / "out.npz") as archive:
        y = archive["y"]
    assert code == 0
    assert (last["value_min"], last["value_max"]) == (y.min(), y.max())
    assert last["value_mean"] == pytest.approx(y.mean(dtype=np.float64))
    assert (last["nan_values"], last["inf_values"], last["difference_max_abs"]) == (0, 0, None)


def test_the_result_is_a_trace_like_any_other(model, capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    path = tmp_path / "x.trace"
    args = (model, "--against", "ort", "--runs", 2, "-o", path, "-o", tmp_path / "x.csv")
    assert run(capfd, *args)[0] == 0
    trace = tracer.load(path)
    assert len(trace.runs[0].wall_us) == 2
    assert trace.nodes["difference_max_abs"].notna().any()
    table = pd.read_csv(tmp_path / "x.csv")
    np.testing.assert_allclose(table["value_max"], trace.nodes["value_max"].astype(float))
    assert tracer.cli.main(["report", str(path), "--by", "op"]) == 0
    assert "GlobalAveragePool" in capfd.readouterr().out


def test_the_longest_rows_are_shown(model, capfd):
    code, out, _ = run(capfd, model, "--top", 2, "--json")
    times = [row["time_us"] for row in rows(out)]
    assert (code, len(times)) == (0, 2)
    every = [row["time_us"] for row in rows(run(capfd, model, "--top", 0, "--json")[1])]
    assert len(every) > 2
    assert times == sorted(times, reverse=True)


def test_agreement_with_onnxruntime_is_exit_code_0(model, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = run(capfd, model, "--against", "ort", "--batch", 3)
    assert (code, "own error" in out) == (0, True)
    assert "every node is within tolerance" in err


def test_the_first_node_out_of_tolerance_is_named_and_is_exit_code_1(model, capfd):
    code, out, err = run(capfd, model, "--against", "ort", "--rtol", 0, "--atol", 0, "--json")
    first = next(node for node in rows(out) if node["difference_own"])
    assert code == 1
    assert f"'{first['node']}' ({first['op_type']}) is out of tolerance on the values of" in err
    assert first["difference_max_abs"] > 0
    assert first["difference_max"] > 0


def test_outputs_go_to_an_npz_file(model, capfd, tmp_path):
    code, _, err = run(capfd, model, "-o", tmp_path / "out.npz")
    assert code == 0
    assert "out.npz" in err
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["y"].shape == (1, 10)
    assert run(capfd, model, "-o", tmp_path / "out.npz")[0] == 3
    assert run(capfd, model, "-o", tmp_path / "out.npz", "--force")[0] == 0
    assert run(capfd, model, "-o", tmp_path / "out.txt")[0] == 2


def test_a_written_folder_is_a_test_of_its_own(model, capfd, tmp_path):
    folder = tmp_path / "test_data_set_0"
    assert run(capfd, model, "-o", folder, "--seed", 5)[0] == 0
    x = onnx.numpy_helper.to_array(onnx.load_tensor(folder / "input_0.pb"))
    y = onnx.numpy_helper.to_array(onnx.load_tensor(folder / "output_0.pb"))
    np.testing.assert_allclose(y, onnxruntime(onnx.load(model), {"x": x})[0], rtol=1e-4, atol=1e-6)
    assert run(capfd, model, "--inputs", folder)[0] == 0
    assert run(capfd, model, "-o", folder)[0] == 3


def test_text_maps_and_optionals_are_written_in_their_declared_types(tmp_path, capfd):
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 3]>
        g (float[N,2] x) => (
          seq(map(string, float)) scores, string[N] label, optional(float[N,2]) some,
          seq(float[]) parts
        ) {
          label, raw = ai.onnx.ml.LinearClassifier <
            classlabels_strings = ["vérsi", "b c"], intercepts = [0.5, 0.25],
            coefficients = [1.0, 2.0, 3.0, 4.0]
          > (x)
          scores = ai.onnx.ml.ZipMap <classlabels_strings = ["vérsi", "b c"]> (raw)
          some = Optional (x)
          parts = SplitToSequence (x)
        }""")
    onnx.save(proto, tmp_path / "m.onnx")
    assert run(capfd, tmp_path / "m.onnx", "--batch", 2, "-o", tmp_path / "set")[0] == 0
    folder = tmp_path / "set"
    x = onnx.numpy_helper.to_array(onnx.load_tensor(folder / "input_0.pb"))
    scores, label, some, parts = onnxruntime(proto, {"x": x})
    forms = (onnx.SequenceProto, onnx.TensorProto, onnx.OptionalProto, onnx.SequenceProto)
    stored = [
        form.FromString((folder / f"output_{i}.pb").read_bytes()) for i, form in enumerate(forms)
    ]
    for each, expected in zip(stored[0].map_values, scores, strict=True):
        assert {value.data_type for value in each.values.tensor_values} == {onnx.TensorProto.FLOAT}
        keys, values = (key.decode() for key in each.string_keys), each.values
        written = dict(zip(keys, map(float, onnx.numpy_helper.to_list(values)), strict=True))
        assert written == pytest.approx(expected)
    assert onnx.numpy_helper.to_array(stored[1]).tolist() == label.tolist()
    np.testing.assert_array_equal(onnx.numpy_helper.to_optional(stored[2]), some)
    np.testing.assert_array_equal(onnx.numpy_helper.to_list(stored[3]), parts)


def test_a_limit_that_is_hit_is_exit_code_4(tmp_path, capfd):
    model = parsed("""
    <ir_version: 8, opset_import: ["": 17]>
    bomb () => (float[N,M] y) {
      s = Constant <value_ints = [1048576, 1048576]> ()
      y = ConstantOfShape (s)
    }
    """)
    onnx.save(model, tmp_path / "bomb.onnx")
    code, out, err = run(capfd, tmp_path / "bomb.onnx")
    assert (code, out) == (4, "")
    assert err.count("\n") == 1
    assert "4.0 TiB" in err
    assert "ConstantOfShape" in err


def test_bodies_and_sizes_that_depend_on_data_are_followed(tmp_path, capfd):
    for name, text in (("branches", BRANCHES), ("data", DATA_DEPENDENT)):
        onnx.save(parsed(text), tmp_path / f"{name}.onnx")
    np.savez(tmp_path / "f.npz", x=np.ones(4, np.float32), flag=np.array(True), trips=np.array(3))
    code, out, _ = run(
        capfd, tmp_path / "branches.onnx", "--inputs", tmp_path / "f.npz", "--json",
        "--against", "ort",
    )  # fmt: skip
    calls = [node["calls"] for node in rows(out) if node["calls"]]
    assert code == 0
    assert sorted(calls) == [1, 1, 1, 1, 3, 3, 3]
    assert run(capfd, tmp_path / "data.onnx", "--batch", 2)[0] == 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", [(), ("--against", "ort")])
@pytest.mark.parametrize(("long_us", "inferences"), [(0.0, [0, 1]), (1e12, [0, 0, 1])])
def test_a_model_runs_once_undisturbed_and_once_recorded(
    options, long_us, inferences, model, capfd, monkeypatch
):
    """A model whose inference is quick warms up before; a comparison runs each node alone."""
    monkeypatch.setattr(executor, "_LONG_US", long_us)
    observed = []
    original = Interpreter.run
    monkeypatch.setattr(
        Interpreter,
        "run",
        lambda self, *args: observed.append(len(self._observers)) or original(self, *args),
    )
    code, out, _ = run(capfd, model, "--json", *options)
    isolated = [1] if options else []
    assert (code, observed) == (0, inferences + isolated)
    assert all(row["time_us"] > 0 and row["value_mean"] is not None for row in rows(out))


def test_own_times_leave_the_work_of_the_recorder_out():
    trace = tracer.interpret(residual(), runs=2, warmup=0)
    run = trace.runs[0]
    assert (run.samples.sum(axis=1) <= run.instrumented_us).all()
    assert trace.nodes["value_min"].notna().all()


def test_outputs_of_one_node_are_told_together(tmp_path, capfd):
    text = """<ir_version: 8, opset_import: ["" : 17]>
        net (float[4, 8] x) => (float[4, 3] v, int64[4, 3] i) <float[8, 9] w, int64[1] k = {3}> {
            y = MatMul (x, w)
            v, i = TopK (y, k) }"""
    weights = np.random.default_rng(0).normal(size=(8, 9)).astype(np.float32)
    onnx.save(parse(text, w=weights), tmp_path / "m.onnx")
    code, out, _ = run(capfd, tmp_path / "m.onnx", "--against", "ort")
    lines = [line for line in out.splitlines() if "error at most" in line]
    assert code == 0 and len(lines) == 1
    assert lines[0].startswith("outputs v, i: error at most ")
