"""Data that one class is predicted for: commands that score by predictions doubt their verdict."""

import numpy as np
import onnx
import pytest

from tests.graphs import parse
from tests.tracer.cli.test_next_step import next_of

ALWAYS_ONE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N,8] x) => (float[N,4] y) { m = MatMul (x, w)  y = Add (m, b) }
"""


@pytest.fixture
def alike(tmp_path, monkeypatch):
    """A network whose bias decides, its data, and the folder."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    bias = np.array([0, 0, 1000, 0], np.float32)
    weights = draw.standard_normal((8, 4)).astype(np.float32)
    onnx.save(parse(ALWAYS_ONE, w=weights, b=bias), "net.onnx")
    np.savez("data.npz", x=draw.standard_normal((32, 8)).astype(np.float32))


DOUBT = "100.0% of the 32 predictions of the reference are class 2"


@pytest.mark.parametrize("accumulator", ["14:18", "fp16"])
def test_a_whatif_tells_the_doubt_and_builds_nothing_on_its_answer(alike, capfd, accumulator):
    given = ["net.onnx", "--accumulator", accumulator, "--data", "data.npz"]
    words = next_of(capfd, "whatif", *given)
    assert words[:2] == ["tracer", "whatif"] and words[-2:] == ["--metric", "noise"]
    assert next_of(capfd, *words[1:])[1] != "whatif"  # noise tells models apart


@pytest.mark.parametrize(
    "words",
    [
        ["whatif", "net.onnx", "--accumulator", "14:18", "--data", "data.npz"],
        ["whatif", "net.onnx", "--accumulator", "fp16", "--data", "data.npz"],
        ["quantize", "net.onnx", "--calibrate", "data.npz", "-o", "q.onnx"],
        ["narrow", "net.onnx", "--data", "data.npz", "--bits", "16", "-o", "n.onnx"],
    ],
    ids=["widths", "accumulators", "quantize", "narrow"],
)
def test_the_doubt_is_shown_without_more_words(alike, capfd, words):
    from tracer.cli import main

    assert main(words) == 0
    out = " ".join(capfd.readouterr().out.split())
    assert f"note: {DOUBT}" in out
