"""Commands work where only the core is installed: no framework and no optional package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODEL = str(ROOT / "models" / "lenet" / "lenet.onnx")
INT8 = str(ROOT / "models" / "lenet" / "lenet.int8.onnx")
OPTIONAL = (
    "chainer", "matplotlib", "onnx_chainer", "onnx_ir", "onnxscript", "perfetto", "pyarrow",
    "safetensors", "scipy", "sklearn", "tensorboardX", "torch", "xlsxwriter",
)  # fmt: skip
CODE = f"""
import contextlib, io, json, sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def find_core(name, path=None, target=None):
    return None if name.partition(".")[0] in {OPTIONAL!r} else find(name, path, target)

PathFinder.find_spec = find_core
from tracer.cli import main

def ran(args):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as err:
            return main(args), out.getvalue(), err.getvalue()

print(json.dumps([ran(args) for args in json.loads(sys.argv[1])]))
"""
"""Runs commands in turn; one cannot import for the next what none finds."""
WORKING = [
    ("profile", MODEL, "--runs", "2", "--no-roofline", "-o", "run.trace"),
    ("count", MODEL, "--by", "op"),
    ("fusions", MODEL),
    ("interpret", MODEL, "--against", "ort", "-o", "outputs.npz"),
    ("interpret", INT8, "--accumulator", "18"),
    ("compare", MODEL, f"{MODEL}@ort:none", "--sessions", "2", "--precision", "100%"),
    ("count", MODEL, "-o", "all/"),
    ("env",),
    ("export", "--help"),
    ("quantize", "--help"),
    ("whatif", "--help"),
]
NEEDING = {
    ("profile", "net.py:Net", "--input-shape", "1,3"): "torch",
    ("export", "program.pt2", "-o", "p.onnx"): "torch",
    ("count", MODEL, "-o", "c.png"): "matplotlib",
    ("count", MODEL, "-o", "c.parquet"): "pyarrow",
}


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """Exit code, standard output and standard error of every command that a test asks for."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "net.py").write_text("import torch\n\nclass Net(torch.nn.Module):\n    pass\n")
    (folder / "program.pt2").write_bytes(b"")
    tests = [each for each in request.session.items if each.parent is request.node]
    commands = [each.callspec.params["args"] for each in tests]
    # A child process would have the optional packages.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRACER_IN_PROCESS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(commands)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(commands, json.loads(done.stdout), strict=True))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "args", WORKING, ids=lambda args: " ".join(Path(arg).name for arg in args[:2])
)
def test_a_command_needs_no_optional_package(args, results):
    code, out, err = results[args]
    assert code == 0, err
    assert out


@pytest.mark.parametrize(
    ("args", "package"),
    NEEDING.items(),
    ids=lambda args: str(args[0]) if isinstance(args, tuple) else args,
)
def test_a_command_that_needs_one_names_it(args, package, results):
    code, _, err = results[args]
    assert code in (2, 3), err
    assert package in err and len(err.splitlines()) == 1
