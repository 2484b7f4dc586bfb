"""Notes that make a total doubtful: they are shown without -v."""

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
