"""What teams copy into their repositories: the action for GitHub, and the hook of pre-commit."""

import os
import re
import shlex
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

import tracer.cli
from tests.graphs import residual
from tracer.storage import trace_file

yaml = pytest.importorskip("yaml")
ROOT = Path.cwd()
ACTION = yaml.safe_load(Path("action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


@pytest.fixture
def measure(tmp_path):
    """Runs the step `Measure` as a runner does, with these inputs."""
    trace = trace_file.load(Path("tests/fixtures/traces/profile.trace"))
    for name, factor in {"main": 1, "same": 1, "slow": 2}.items():
        run = replace(trace.runs[0], wall_us=trace.runs[0].wall_us * factor, use=None)
        (tmp_path / f"{name}.trace").write_bytes(trace_file.dumps(replace(trace, runs=(run,))))
    onnx.save(residual(), tmp_path / "m.onnx")
    command = tmp_path / "bin" / "tracer"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tracer "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)

    def run(**inputs):
        given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
        env = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: given[m[1]], value)
            for name, value in STEPS["Measure"]["env"].items()
        }
        places = {"RUNNER_TEMP": "tmp", "GITHUB_OUTPUT": "out", "GITHUB_STEP_SUMMARY": "summary"}
        env |= {name: str(tmp_path / place) for name, place in places.items()}
        env["PATH"] = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
        done = subprocess.run(
            [*shell, STEPS["Measure"]["run"]], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )  # fmt: skip
        return done, tmp_path

    return run


def test_every_input_is_declared_and_used():
    used = set(re.findall(r"inputs\.([\w-]+)", Path("action.yml").read_text()))
    assert used == set(ACTION["inputs"])
    assert all(step.get("shell") == "bash" for step in STEPS.values() if "run" in step)
    # inputs reach a script as variables alone: one with a quote in it runs nothing
    assert not any("${{" in step.get("run", "") for step in STEPS.values())


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("model", "code", "verdict"), [("same", 0, "pass"), ("slow", 1, "FAIL")])
def test_a_comparison_has_a_summary_a_page_and_an_exit_code(measure, model, code, verdict):
    done, folder = measure(model=f"{model}.trace", against="main.trace", arguments="")
    assert done.returncode == code, done.stderr
    assert f"- {verdict}: {model}.trace is " in (folder / "summary").read_text()
    assert (folder / "out").read_text() == f"folder={folder / 'tmp' / 'tracer'}\n"
    names = {file.name for file in (folder / "tmp" / "tracer").iterdir()}
    assert names == {"report.html", "summary.md", "speed.junit.xml"}


@pytest.mark.nightly
def test_a_profile_has_a_table_in_the_summary(measure):
    done, folder = measure(model="m.onnx", arguments="--threads 1 --runs 3 --no-roofline")
    assert done.returncode == 0, done.stderr
    assert "| c2" in (folder / "summary").read_text()
    assert (folder / "tmp" / "tracer" / "run.trace").exists()


def test_what_cannot_be_measured_fails_without_a_summary(measure):
    done, folder = measure(model="none.onnx; touch evil", arguments="*")
    assert done.returncode in (2, 3)
    assert not (folder / "summary").exists() and not (folder / "evil").exists()


def test_the_hook_of_pre_commit_holds_a_budget(tmp_path, monkeypatch, capfd):
    (hook,) = yaml.safe_load(Path(".pre-commit-hooks.yaml").read_text())
    program, *words = hook["entry"].split()
    assert program == "tracer" and re.search(hook["files"], "models/m.onnx")
    monkeypatch.chdir(tmp_path)
    onnx.save(residual(), "m.onnx")
    params = sum(
        weight.size for weight in map(onnx.numpy_helper.to_array, residual().graph.initializer)
    )
    least = ["--max-params", str(params), "--max-macs", "701000"]
    assert tracer.cli.main([*words, "m.onnx", *least]) == 0
    assert tracer.cli.main([*words, "m.onnx", "--max-params", str(params - 1)]) == 1
    assert f"has {params:,} parameters; --max-params is {params - 1:,}" in capfd.readouterr().err
    assert tracer.cli.main([*words, "m.onnx", "--max-macs", "700000"]) == 1


def test_a_budget_of_unknown_work_is_not_kept(tmp_path, monkeypatch, capfd):
    """Work that nothing counts is no work that fits."""
    monkeypatch.chdir(tmp_path)
    node = onnx.helper.make_node("Mine", ["x"], ["y"], domain="own")
    ends = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:])
    versions = [onnx.helper.make_opsetid("own", 1), onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=versions, ir_version=9), "own.onnx")
    assert tracer.cli.main(["count", "own.onnx", "--max-macs", "5"]) == 1
    err = capfd.readouterr().err
    assert "not all MACs are known, which --max-macs needs. Add the rules" in err
    assert "--operators FILE.py" in err
