"""Every model in `models/` agrees with onnxruntime at every node."""

from pathlib import Path

import pytest

from tests.processors import with_vnni
from tracer.executors.onnxruntime.all_outputs import tensors
from tracer.graph.loading import open_model
from tracer.graph.operators import precisions
from tracer.inputs.request import request_for
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Isolation, Recorder
from tracer.support.tolerance import Tolerance

FILES = sorted((Path(__file__).parents[2] / "models").rglob("*.onnx"))
# Sums in another order, rounded to integers, may differ by one: see tests/models/test_quantized.py
MODELS = [path for path in FILES if not path.stem.endswith(".int8")]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=with_vnni if p.stem.endswith(".int4") else ()) for p in MODELS],
    ids=lambda path: path.stem,
)
def test_every_node_agrees(path):
    model = open_model(path)
    feeds = request_for(path, model).feeds().feeds
    expected = tensors(model, feeds)
    recorder = Recorder(expected=expected, precisions=precisions(model, expected))
    isolation = Isolation(model, expected, Tolerance())
    interpreter = Interpreter(model)
    interpreter.with_observers(recorder).run(None, feeds)
    interpreter.with_observers(isolation).run(None, feeds)
    assert not any(difference.fault for difference in isolation.differences.values())
    records = recorder.records.items()
    differences = {key: record.difference for key, record in records if record.difference}
    assert not any(difference.fault for difference in differences.values())
    main = [key for key, record in recorder.records.items() if not record.node.scope.path]
    assert list(differences) == list(isolation.differences) == main


def test_there_are_models():
    assert MODELS
