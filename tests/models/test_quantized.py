"""The int8 models in the repository are what `tracer quantize` makes of the float ones."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime as ort
import pytest

from models import families
from tests.examples import at_night
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization.calibration import CalibrationSamples
from tracer.quantization.options import QuantizationOptions
from tracer.quantization.quantizer import quantized_graphs

SHIPPED = [name for name in families.of_images() if families.recipe(name).shipped]
CARD_ROW = re.compile(r"^\| `(?P<file>\w+\.int8\.onnx)` .*\| (?P<accuracy>[\d.]+) % \|$", re.M)


def quantised(family):
    return families.shipped(family, "torch").with_suffix(".int8.onnx")


def scores(model, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))[0]


def digits(path):
    (batch,) = open_dataset("digits", loading.load(path)).batches(1000)
    return batch


@pytest.mark.one_in(3)
@pytest.mark.parametrize("family", SHIPPED)
def test_the_card_gives_the_accuracy_that_is_measured(family):
    path = quantised(family)
    assert path.stat().st_size < 2**20
    card = (families.FOLDER / family / "README.md").read_text("utf-8")
    message = {row["file"]: float(row["accuracy"]) for row in CARD_ROW.finditer(card)}
    batch = digits(path)
    right = 100 * (scores(str(path), batch.inputs).argmax(1) == batch.labels).mean()
    assert message[path.name] == pytest.approx(right, abs=0.3)  # one image of 360
    assert right >= 97


@pytest.mark.one_in(3)
@pytest.mark.parametrize("family", SHIPPED)
def test_the_interpreter_predicts_what_onnxruntime_does(family):
    path = quantised(family)
    given = open_dataset("digits", loading.load(path), limit=120)
    (batch,) = given.batches(120)
    (ours,) = Interpreter(path).run(None, batch.inputs)
    theirs = scores(str(path), batch.inputs)
    np.testing.assert_array_equal(ours.argmax(1), theirs.argmax(1))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("family", at_night(SHIPPED, but=["lenet", "transformer"]))
def test_it_is_what_the_command_makes(family, tmp_path):
    path = quantised(family)
    model = loading.load(families.shipped(family, "torch"))
    data = open_dataset("digits", model, limit=512, split="train")
    _, made = quantized_graphs(model, CalibrationSamples(data, 32), QuantizationOptions(), tmp_path)
    batch = digits(path)
    built, shipped = (scores(m, batch.inputs) for m in (str(made), str(path)))
    np.testing.assert_array_equal(built.argmax(1), shipped.argmax(1))
    # scales are sums of floats, whose last bits differ from one processor to another
    assert np.abs(built - shipped).max() <= 0.02 * np.ptp(shipped)
    kept = _origins(loading.load(path))
    assert kept == _origins(loading.load(made))
    assert None not in {module for _, module, _ in kept.values()}


def _origins(model):
    return {node.key: (node.op_type, node.module, node.source) for node in model.nodes}
