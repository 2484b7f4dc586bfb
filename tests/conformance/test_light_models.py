"""The nine architectures that come with onnx, against onnxruntime without optimisation."""

import numpy as np
import onnx
import pytest

from tests.conformance import suite
from tests.interpreter.models import onnxruntime
from tracer.interpreter.interpreter import Interpreter


@pytest.mark.nightly
@pytest.mark.parametrize("path", suite.light_models(), ids=lambda path: path.stem)
def test_light_model(path):
    model = onnx.load(path)
    weights = {w.name for w in model.graph.initializer}
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.random([d.dim_value for d in value.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for value in model.graph.input
        if value.name not in weights
    }
    outputs = Interpreter(model).run(None, feeds)
    for ours, theirs in zip(outputs, onnxruntime(model, feeds), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6 * np.abs(theirs).max())


def test_there_are_nine():
    assert len(suite.light_models()) == 9
