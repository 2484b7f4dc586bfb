"""The trained models in the repository are what their cards say."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import onnxruntime
import pytest

from models import data, families
from tracer.graph import loading, provenance

SHIPPED = [
    (family, framework)
    for family in families.of_images()
    if families.recipe(family).shipped
    for framework in families.frameworks(family)
]
CARD_ROW = re.compile(r"^\| `(?P<file>[\w.]+\.onnx)` .*\| (?P<accuracy>[\d.]+) % \|$", re.MULTILINE)


def accuracy(family, framework) -> float:
    digits = data.load("digits").fitted(families.recipe(family).input_shape)
    x, y = digits.test.batch(slice(None))
    session = onnxruntime.InferenceSession(
        str(families.shipped(family, framework)), providers=["CPUExecutionProvider"]
    )
    (scores,) = session.run(None, {session.get_inputs()[0].name: x})
    return float((np.argmax(scores, 1) == y).mean())


def test_lenet_and_resnet_20_are_shipped_in_both_frameworks():
    assert {(f, w) for f in ("lenet", "resnet_cifar") for w in families.FRAMEWORKS} <= set(SHIPPED)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("family", "shipped_by"), SHIPPED)
def test_the_card_gives_the_accuracy_that_is_measured(family, shipped_by):
    card = (families.FOLDER / family / "README.md").read_text("utf-8")
    message = {row["file"]: float(row["accuracy"]) for row in CARD_ROW.finditer(card)}
    name = families.shipped(family, shipped_by).name
    measured = 100 * accuracy(family, shipped_by)
    assert message[name] == pytest.approx(measured, abs=0.3)  # one image of 360
    assert measured >= 97


@pytest.mark.parametrize(("family", "shipped_by"), SHIPPED)
def test_every_shipped_node_knows_its_module_and_line(family, shipped_by):
    model = loading.load(families.shipped(family, shipped_by))
    assert model.path is not None
    assert model.path.stat().st_size < 2 * 2**20
    for node in model.nodes:
        assert node.module is not None, node.key
        assert node.source is not None, node.key
        assert node.source.startswith(f"models/{family}/{shipped_by}_net.py:"), node.source
    assert provenance.metadata(model.proto)["io.github.tracer-onnx.trained-on"] == "digits"


@pytest.mark.parametrize(("family", "shipped_by"), SHIPPED)
def test_the_line_a_shipped_layer_came_from_is_still_the_one_that_calls_it(family, shipped_by):
    """Whoever moves a line of a definition makes its shipped models point elsewhere."""
    layers = {"Conv", "BatchNormalization", "Gemm"}
    checked = set()
    for node in loading.load(families.shipped(family, shipped_by)).nodes:
        if node.op_type in layers:
            file, _, line = str(node.source).rpartition(":")
            code = (families.FOLDER.parent / file).read_text("utf-8").splitlines()[int(line) - 1]
            assert f"self.{str(node.module).rpartition('.')[2]}(" in code, (node.key, node.source)
            checked.add(node.op_type)
    assert checked >= {"Conv", "Gemm"}


@pytest.mark.parametrize("shipped_by", families.FRAMEWORKS)
def test_the_shipped_resnet_20_has_a_node_for_each_function_of_experiment_1(shipped_by):
    model = loading.load(families.shipped("resnet_cifar", shipped_by))
    assert Counter(node.op_type for node in model.nodes) == {
        "Conv": 21,
        "BatchNormalization": 21,
        "Relu": 19,
        "Add": 2,
        "AveragePool": 1,
        "Reshape": 1,
        "Gemm": 1,
    }
    read = {name for node in model.nodes for name in node.inputs}
    assert {weight.name for weight in model.graph.initializer} <= read
    convolutions = [node.module for node in model.nodes if node.op_type == "Conv"]
    assert convolutions[0] == "conv"
    assert convolutions[-1] == "stage3.2.conv2"
    assert len(set(convolutions)) == 21
