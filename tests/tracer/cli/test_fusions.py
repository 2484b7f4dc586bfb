import csv
import io
import json

import numpy as np
import onnx
import onnx.parser
import pytest

import tracer
import tracer.cli
from tests import nets
from tests.graphs import BRANCHES, parse, residual
from tracer.api import _profile
from tracer.errors import InputError, LimitError, UsageError
from tracer.executors.onnxruntime import all_outputs, fusion_check
from tracer.limits import Limits


@pytest.fixture
def encoder(tmp_path):
    path = tmp_path / "encoder.onnx"
    onnx.save(nets.encoder(), path)
    return path


def run(*args):
    return tracer.cli.main([str(arg) for arg in args])


def test_the_summary_comes_first_and_every_kernel_has_a_line(encoder, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert run("fusions", encoder, "--top", 0) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[1].startswith("49 nodes became 23 kernels; 4 groups")
    assert any("FusedMatMul" in line and "scores + scaled" in line for line in lines)


def test_long_tables_stop_at_top(encoder, capfd):
    assert run("fusions", encoder, "--top", 3) == 0
    assert "… 20 more; --top 0 shows all" in capfd.readouterr().out
    assert run("fusions", encoder, "--top", 0) == 0
    assert "more; --top" not in capfd.readouterr().out


def test_formats_tell_the_same_map(encoder, tmp_path, capfd):
    table, page = tmp_path / "map.csv", tmp_path / "map.md"
    assert run("fusions", encoder, "--json", "-o", table, "-o", page) == 0
    document = json.loads(capfd.readouterr().out)
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    pairs = {(row["kernel"], row["node"]) for row in rows if row["kernel"]}
    assert pairs == {(k["kernel"], n) for k in document["kernels"] for n in k["nodes"] or [""]}
    assert document["summary"][0] in page.read_text()
    assert len(document["nodes"]) == 49


def test_given_inputs_are_those_that_values_are_compared_on(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(nets.mlp(), path)
    files = [tmp_path / f"{seed}.npz" for seed in range(3)]
    for seed, file in enumerate(files):
        np.savez(file, x=np.random.default_rng(seed).standard_normal((2, 12)).astype(np.float32))
    assert tracer.fusions(path, inputs=files).inputs == 3
    one = tracer.fusions(path, inputs=files[0])
    assert one.inputs == 1
    assert {row.verdict for row in one.kernels} == {"confirmed"}


def test_a_map_that_values_cannot_confirm_is_printed_all_the_same(encoder, monkeypatch):
    def refuse(*_):
        raise LimitError("all tensors are too many")

    monkeypatch.setattr(fusion_check, "evidence", refuse)
    result = tracer.fusions(encoder)
    assert result.inputs == 0
    assert "values were not compared: all tensors are too many" in result.notes
    assert {row.verdict for row in result.kernels} == {"not confirmed"}
    groups = [row.nodes for row in result.kernels if row.role == "group"]
    assert ("scores", "scaled") in groups


@pytest.mark.nightly
def test_a_profile_goes_by_the_same_map_and_says_where_values_cannot_be_compared(
    encoder, monkeypatch
):
    trace = tracer.profile(encoder, runs=2, warmup=0)
    assert not any("values" in note or "names" in note for note in trace.notes)
    named = dict(zip(trace.nodes["node"], trace.nodes["kernels"], strict=True))
    for row in tracer.fusions(encoder).kernels:
        assert all(row.kernel in named[node] for node in row.nodes)
    monkeypatch.setattr(_profile, "_COMPARED_BYTES", 1000)
    for provider in ("cpu", "CPUExecutionProvider"):
        notes = tracer.profile(encoder, runs=2, warmup=0, provider=provider).notes
        assert any("by names alone: all tensors of the optimised graph" in note for note in notes)


def test_more_tensors_than_there_is_room_for_are_refused(encoder):
    result = tracer.fusions(encoder, limits=Limits(live_bytes=1000))
    assert result.inputs == 0
    assert any("at most 1000 B are compared" in note for note in result.notes)


def test_an_operator_the_interpreter_does_not_know_leaves_the_map_unconfirmed():
    text = """
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[3,3] x) => (float[3,3] y) { u = Cos (x)  y = com.microsoft.SampleOp (u) }
    """
    result = tracer.fusions(parse(text))
    assert result.inputs == 0
    assert "SampleOp" in result.notes[-1]
    assert [row.nodes for row in result.kernels] == [("Cos_0",), ("SampleOp_1",)]


def test_nameless_nodes_and_bodies_are_mapped(tmp_path, capfd):
    path = tmp_path / "branches.onnx"
    onnx.save(onnx.parser.parse_model(BRANCHES), path)
    assert run("fusions", path, "--optimization", "none") == 0
    shown = capfd.readouterr().out
    assert "8 nodes became" in shown
    assert "not run" in shown


@pytest.mark.parametrize("width", [80, 160])
def test_no_line_is_wider_than_the_terminal(width, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    path = tmp_path / "residual.onnx"
    onnx.save(residual(), path)
    assert run("fusions", path) == 0
    assert max(map(len, capfd.readouterr().out.splitlines())) <= width


def test_errors_are_one_sentence(encoder, tmp_path, capfd):
    assert run("fusions", tmp_path / "none.onnx") == InputError.exit_code
    assert run("fusions", encoder, "-o", tmp_path / "map.png") == UsageError.exit_code
    assert run("fusions", encoder, "--inputs", tmp_path / "none.npz") == InputError.exit_code
    assert capfd.readouterr().err.count("\n") == 3


def test_a_kernel_that_makes_outputs_wrong_is_fused_wrongly(tmp_path, monkeypatch, capfd):
    """The kernel of c2, sum and r2 returns 1 too much, and so do those behind it."""
    path = tmp_path / "residual.onnx"
    onnx.save(residual(), path)
    plain = all_outputs.runner_of_saved

    def wrong_runner(*args):
        run = plain(*args)
        return lambda feeds: {n: v + float(n != "reorder_token_0") for n, v in run(feeds).items()}

    monkeypatch.setattr(all_outputs, "runner_of_saved", wrong_runner)
    assert run("fusions", path) == 0
    shown = capfd.readouterr().out
    assert "1 fused wrongly" in shown
    assert "--fault wrong" in shown
    verdicts = {row.nodes: row.verdict for row in tracer.fusions(path).kernels}
    assert verdicts["c1", "r1"] == "confirmed"
    assert verdicts["c2", "sum", "r2"] == "fused wrongly"


def test_a_wrong_model_is_no_wrong_fusion(tmp_path, monkeypatch):
    """Where the graph without optimisation is wrong as well, values confirm nothing."""
    path = tmp_path / "residual.onnx"
    onnx.save(residual(), path)
    for name in ("runner_of_saved", "tensors"):
        plain = getattr(all_outputs, name)

        def wrong(*args, of=plain, is_run=name == "tensors"):
            found = of(*args)
            if is_run:
                return {n: v + 1 for n, v in found.items()}
            return lambda feeds: {n: v + 1 for n, v in found(feeds).items()}

        monkeypatch.setattr(all_outputs, name, wrong)
    verdicts = {row.verdict for row in tracer.fusions(path).kernels}
    assert "fused wrongly" not in verdicts
    assert "not confirmed" in verdicts
