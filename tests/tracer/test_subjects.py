"""What may be named as a model: packed files, folders, standard input, code, exported programs."""

import gzip
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer.cli
from tests.graphs import residual
from tracer.errors import ModelError, UsageError
from tracer.exporters.subject import Code, open_subject
from tracer.graph import loading

NET = """
    import torch
    from widths import width

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, width, 3)
            print("made")

        def forward(self, x):
            return self.conv(x).relu()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("m.onnx").write_bytes(residual().SerializeToString())
    return tmp_path


def command(*args, stdin=b"", cwd=None):
    """Runs `tracer` as a shell does."""
    return subprocess.run(
        [sys.executable, "-m", "tracer", *args], input=stdin, capture_output=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(tracer.__file__).parents[1])}, cwd=cwd,
    )  # fmt: skip


def test_a_packed_model_is_the_model(folder):
    Path("m.onnx.gz").write_bytes(gzip.compress(Path("m.onnx").read_bytes()))
    packed, plain = loading.load("m.onnx.gz"), loading.load("m.onnx")
    assert packed.proto == plain.proto
    assert packed.name == "m.onnx.gz"
    Path("in").mkdir()
    Path("m.onnx.gz").rename("in/m.onnx.gz")
    trace = tracer.profile("in", runs=2, in_process=True)
    assert trace.model.name == "m.onnx.gz"
    assert set(tracer.count("m.onnx", in_process=True).nodes["node"]) <= set(trace.nodes["node"])


def test_a_packed_file_that_is_broken_or_a_bomb_or_has_other_files_is_refused(folder):
    whole = gzip.compress(Path("m.onnx").read_bytes())
    bomb = gzip.compress(b"\x08\x08" + bytes(100 << 20))
    proto = residual()
    onnx.external_data_helper.convert_model_to_external_data(proto, size_threshold=0)
    for tensor in proto.graph.initializer:
        onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    apart = gzip.compress(proto.SerializeToString())
    for content, message in (
        (whole[:-20], "truncated gzip"),
        (whole[:40] + bytes(40) + whole[80:], "broken gzip"),
        (bomb, "far more than its own size"),
        (apart, "weights are in other files"),
        (gzip.compress(b"\xff" * 99), "does not parse"),
    ):
        Path("x.onnx.gz").write_bytes(content)
        with pytest.raises(ModelError, match=rf"x\.onnx\.gz.*{message}"):
            loading.load("x.onnx.gz")


def test_an_ort_file_is_refused_with_what_to_name(folder):
    options = ort.SessionOptions()
    options.optimized_model_filepath = "m.ort"
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession("m.onnx", options, ["CPUExecutionProvider"])
    with pytest.raises(ModelError, match=r"m\.ort: .*an \.ort file.*Name the \.onnx file"):
        loading.load("m.ort")


@pytest.mark.nightly
def test_a_model_is_read_from_standard_input_and_again_after_a_crash(folder):
    data = Path("m.onnx").read_bytes()
    for stream in (data, gzip.compress(data)):
        done = command("count", "-", "--json", stdin=stream)
        assert done.returncode == 0, done.stderr
        assert b'"name": "stdin.onnx"' in done.stdout
    empty = command("count", "-")
    assert (empty.returncode, empty.stdout) == (3, b"")
    for stream, reason in ((b"", b"the file is empty"), (b"abc " * 9, b"not an ONNX model but")):
        refused = command("count", "-", stdin=stream)
        assert refused.stderr.startswith(b"tracer: error: stdin.onnx: " + reason)
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (int32[1] x) => (int32[1] y) {
      least = Constant <value_ints = [-2147483648]> ()  minus = Constant <value_ints = [-1]> ()
      a = Cast <to = 6> (least)  b = Cast <to = 6> (minus)  z = Mul (a, x)
      [crashing] y = Div (z, b)
    }
    """
    crashing = onnx.parser.parse_model(text).SerializeToString()
    crashed = command("profile", "-", "--runs", "2", "--no-roofline", stdin=crashing)
    assert crashed.returncode == 5
    assert b"ran node crashing (Div)" in crashed.stderr


@pytest.mark.nightly
@pytest.mark.needs("torch", "onnxscript")
def test_code_is_exported_once_until_it_changes(folder):
    Path("net.py").write_text(textwrap.dedent(NET))
    Path("widths.py").write_text("width = 4\n")
    shape = ("--input-shape", "1,3,8,8")
    first, second = (command("count", "net.py:Net", "--json", *shape) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert b"made" in first.stderr
    assert b"made" not in first.stdout + second.stderr  # stdout is data; the second ran no code
    assert first.stdout == second.stdout
    assert b'"name": "net.py:Net"' in first.stdout
    Path("widths.py").write_text("width = 6\n")
    third = command("count", "net.py:Net", "--json", *shape)
    assert b"made" in third.stderr
    assert b"float32[1,6,6,6]" in third.stdout
    without = command("count", "net.py:Net")
    assert without.returncode == 2
    assert b"--input-shape 1,3,32,32" in without.stderr


TOKENS = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self, width, words=10):
            super().__init__()
            self.embed = torch.nn.Embedding(words, width)
            self.head = torch.nn.Linear(width, 3)

        def forward(self, x):
            return self.head(self.embed(x))
"""


@pytest.mark.nightly
@pytest.mark.needs("torch", "onnxscript")
def test_arguments_weights_and_types_reach_an_export(folder, capfd):
    import torch

    def run(*args):
        """Runs a command in this process, which has imported torch."""
        code = tracer.cli.main(list(args))
        return code, capfd.readouterr().err

    def arranged(value):
        """Weights of a Net(4) whose outputs are all `value`."""
        shapes = {"embed.weight": (10, 4), "head.weight": (3, 4), "head.bias": (3,)}
        weights = {name: torch.zeros(shape) for name, shape in shapes.items()}
        torch.save(weights | {"head.bias": torch.full((3,), value)}, "w.pt")

    Path("net.py").write_text(textwrap.dedent(TOKENS))
    inputs = ("--input-shape", "2,5", "--input-dtype", "int64")
    code = ("net.py:Net", "--arg", "width=4", "--weights", "w.pt", *inputs)
    for value in (3.0, 7.0):  # the content of the weights matters, not their name
        arranged(value)
        done, err = run("interpret", *code, "--batch", "2", "-o", "y.npz", "--force")
        assert done == 0, err
        (output,) = np.load("y.npz").values()
        assert (output == np.full((2, 5, 3), value)).all()
    for name, options in {
        "count": ("--json",), "fusions": ("--json",),
        "quantize": ("--calibrate", "x.npz", "-o", "q.onnx"),
        "whatif": ("--data", "x.npz", "--accumulator", "16", "--fixed", "8:5"),
    }.items():  # fmt: skip
        np.savez("x.npz", x=np.arange(10).reshape(2, 5))
        renamed = {"--weights": "--weights-file"} if name == "quantize" else {}
        done, err = run(name, *(renamed.get(word, word) for word in code), *options)
        assert done == 0, err
    missing, err = run("count", "net.py:Net", *inputs)
    assert missing == 2
    assert "needs arguments: width. Give --arg width=VALUE" in err


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "option",
    [("--arg", "width=3"), ("--weights", "w.pt"), ("--input-dtype", "int64"), ("--trust",)],
)
def test_what_only_code_has_is_refused_for_an_onnx_model(folder, option):
    refused = command("count", "m.onnx", *option)
    assert refused.returncode == 2
    assert b"m.onnx is an ONNX model" in refused.stderr
    assert option[0].encode() in refused.stderr
    assert refused.stderr.count(b"\n") == 1


@pytest.mark.nightly
@pytest.mark.needs("torch", "onnxscript")
def test_an_exported_program_is_a_subject(folder):
    import torch

    program = torch.export.export(torch.nn.Linear(3, 5), (torch.zeros(2, 3),))
    torch.export.save(program, "p.pt2")
    trace = tracer.profile("p.pt2", runs=2, in_process=True)
    assert trace.model.name == "p.pt2"
    assert trace.nodes["macs"].sum() == 2 * 3 * 5


def test_a_shape_for_an_onnx_model_is_refused_with_the_option_for_it(folder):
    with pytest.raises(UsageError, match=r"declares the shapes of its inputs.*--dim x:2=48"):
        open_subject(Code("m.onnx", ((1, 3, 8, 8),)))
