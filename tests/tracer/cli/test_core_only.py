"""Commands work where only the core is installed: no framework and no optional package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODEL = str(ROOT / "models" / "lenet" / "lenet.onnx")
INT8 = str(ROOT / "models" / "lenet" / "lenet.int8.onnx")
OPTIONAL = (
    "PIL", "chainer", "matplotlib", "onnx_chainer", "onnx_ir", "onnxscript", "perfetto", "pyarrow",
    "safetensors", "sklearn", "tensorboardX", "torch", "xlsxwriter",
)  # fmt: skip
CODE = f"""
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def find_core(name, path=None, target=None):
    return None if name.partition(".")[0] in {OPTIONAL!r} else find(name, path, target)

PathFinder.find_spec = find_core
from tracer.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(*args, folder):
    # A child process would have the optional packages.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRACER_IN_PROCESS": "1"}
    return subprocess.run(
        [sys.executable, "-c", CODE, *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "args",
    [
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
    ],
    ids=lambda args: " ".join(Path(arg).name for arg in args[:2]),
)
def test_a_command_needs_no_optional_package(args, tmp_path):
    result = run(*args, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize(
    ("args", "package"),
    [
        (("profile", "net.py:Net", "--input-shape", "1,3"), "torch"),
        (("export", "program.pt2", "-o", "p.onnx"), "torch"),
        (("count", MODEL, "-o", "c.png"), "matplotlib"),
        (("count", MODEL, "-o", "c.parquet"), "pyarrow"),
    ],
    ids=lambda args: str(args[0]) if isinstance(args, tuple) else args,
)
def test_a_command_that_needs_one_names_it(args, package, tmp_path):
    (tmp_path / "net.py").write_text("import torch\n\nclass Net(torch.nn.Module):\n    pass\n")
    (tmp_path / "program.pt2").write_bytes(b"")
    result = run(*args, folder=tmp_path)
    assert result.returncode in (2, 3), result.stderr
    assert package in result.stderr and len(result.stderr.splitlines()) == 1
