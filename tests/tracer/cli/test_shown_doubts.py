"""Notes that make a total doubtful: they are shown without -v."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import tracer.cli
from tests.analyzers.cost.test_trips import LOOP
from tests.graphs import BRANCHES, parse

FED = LOOP.replace("(float[2,2] x)", "(float[2,2] x, int64 trips)", 1)
MODELS = {
    "one of its branches runs; both are counted": BRANCHES,
    "the trip count is unknown": FED.replace("int64 trips = {10}, ", ""),
}


@pytest.mark.parametrize("note", MODELS)
def test_a_total_that_depends_on_data_is_doubted(note, tmp_path, capfd):
    onnx.save(parse(MODELS[note]), tmp_path / "m.onnx")
    assert tracer.cli.main(["count", str(tmp_path / "m.onnx")]) == 0
    assert note in " ".join(capfd.readouterr().out.split())


LENET = "models/lenet/lenet.onnx"
INT8 = "models/lenet/lenet.int8.onnx"
WITH_NAN = [
    ("profile", INT8, "--runs", "2", "--no-roofline", "--inputs", "{nan}"),
    pytest.param(
        ("profile", INT8, "--runs", "2", "--no-roofline", "--batch", "4", "--data", "{nan}"),
        marks=pytest.mark.nightly,
    ),
    ("interpret", LENET, "--inputs", "{nan}"),
    ("interpret", LENET, "--data", "{nan}"),
    ("interpret", INT8, "--accumulator", "20", "--data", "{nan}"),
    ("interpret", INT8, "--accumulator", "20", "--batch", "1", "--inputs", "{nan}"),
    ("whatif", LENET, "--accumulator", "20", "--no-search", "--data", "{nan}"),
    ("whatif", INT8, "--accumulator", "20", "--no-search", "--data", "{nan}"),
    ("whatif", INT8, "--accumulator", "fp32", "--data", "{nan}"),
    ("quantize", LENET, "--calibrate", "{nan}", "--test", "{ok}", "-o", "{folder}/q.onnx"),
    pytest.param(
        ("narrow", INT8, "--bits", "20", "--data", "{nan}", "--test", "{ok}"),
        marks=pytest.mark.nightly,
    ),
    pytest.param(
        ("compare", INT8, INT8, "--sessions", "2", "--precision", "90%", "--data", "{nan}"),
        marks=pytest.mark.nightly,
    ),
]


@pytest.mark.parametrize("words", WITH_NAN, ids=" ".join)
def test_nan_in_data_is_told_once_and_without_it_never(words, tmp_path, monkeypatch, capfd):
    words = [str(Path(word).resolve()) if word in (LENET, INT8) else word for word in words]
    monkeypatch.chdir(tmp_path)  # a long path would be cut at the end of a line
    values = np.random.default_rng(0).random((4, 3, 32, 32), np.float32)
    np.savez("ok.npz", x=values)
    values[2, 0, 5, 5] = np.nan
    np.savez("nan.npz", x=values)
    for name, count in (("nan", 1), ("ok", 0)):
        line = [word.format(nan=f"{name}.npz", ok="ok.npz", folder=tmp_path) for word in words]
        assert tracer.cli.main([*line, *(["--force"] if "-o" in line else [])]) == 0
        told = f"input 'x' holds NaN in {name}.npz: leave such samples out"
        assert " ".join(capfd.readouterr().out.split()).count(told) == count
