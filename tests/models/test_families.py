from __future__ import annotations

import importlib
import importlib.util
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from models import families
from models.recipe import Recipe
from tests.examples import at_night
from tracer.api.export import export
from tracer.errors import ModelError, UsageError
from tracer.exporters.records import ExportOptions
from tracer.graph import loading

SMALL = {
    "lenet": {},
    "mnist": {},
    "resnet_cifar": {"depth": 8},
    "resnet_imagenet": {"depth": 18, "classes": 10},
    "transformer": {"layers": 1},
}
SIZES = {"resnet_imagenet": (3, 32, 32)}
COMMITS = {("lenet", "torch"), ("lenet", "chainer"), ("resnet_cifar", "chainer")}
"""What the suite of each commit exports; the nightly one exports all."""
DEFINITIONS = [
    pytest.param(name, f, marks=[pytest.mark.nightly] * ((name, f) not in COMMITS))
    for name in families.of_images()
    for f in families.frameworks(name)
]


def shape_of(family: str) -> tuple[int, int, int]:
    return SIZES.get(family, families.recipe(family).input_shape)


def test_the_families_are_the_five_of_the_experiments_and_two_of_language():
    assert families.of_images() == tuple(sorted(SMALL))
    assert set(families.names()) - set(SMALL) == {"gpt", "llama"}


@pytest.mark.parametrize("family", families.names())
def test_every_family_has_a_recipe_and_a_card(family):
    assert isinstance(families.recipe(family), Recipe)
    assert (families.FOLDER / family / "README.md").read_text("utf-8").startswith("# ")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("family", "framework"), DEFINITIONS)
def test_onnxruntime_computes_what_the_framework_computes(
    family, framework, tmp_path, framework_outputs
):
    model = families.build(family, framework, SMALL[family])
    path = tmp_path / "model.onnx"
    export(model, path, input_shape=(1, *shape_of(family)))
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = np.random.default_rng(batch).random((batch, *shape_of(family)), np.float32)
        (result,) = session.run(None, {session.get_inputs()[0].name: x})
        assert result.shape == (batch, 10)
        np.testing.assert_allclose(result, framework_outputs(model, x), atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "variant", at_night([{"residual": "always"}, {"depth": 14}], but=[{"residual": "always"}])
)
@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_variants_of_the_small_resnet_can_be_exported(framework, variant, tmp_path):
    model = families.build("resnet_cifar", framework, {"depth": 8, **variant})
    path = tmp_path / "model.onnx"
    options = ExportOptions(keep_batchnorm=framework == "torch")
    export(model, path, input_shape=(1, 3, 32, 32), options=options)
    nodes = Counter(node.op_type for node in loading.load(path).nodes)
    blocks = variant.get("depth", 8) // 6 * 3
    assert nodes["Add"] == (3 if variant.get("residual") == "always" else 2)
    assert nodes["Conv"] == nodes["BatchNormalization"] == 1 + 2 * blocks + 2


@pytest.mark.parametrize(("family", "framework"), DEFINITIONS)
def test_a_definition_loads_by_its_path_alone(family, framework, monkeypatch):
    """So that it can be exported from any folder; it may need nothing else of `models`."""
    families.build(family, framework, SMALL[family])  # makes Chainer importable
    monkeypatch.setattr(
        sys, "path", [p for p in sys.path if Path(p or ".").resolve() != families.FOLDER.parent]
    )
    model = families.recipe(family).model
    for name in [name for name in sys.modules if name.partition(".")[0] == "models"]:
        monkeypatch.delitem(sys.modules, name)
    file = families.FOLDER / family / f"{framework}_net.py"
    spec = importlib.util.spec_from_file_location("by_path", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert getattr(module, model)(**SMALL[family])


@pytest.mark.needs("torch", "chainer")
@pytest.mark.parametrize(
    ("family", "tables"),
    [("resnet_cifar", ["RESIDUALS"]), ("resnet_imagenet", ["BLOCKS", "KINDS"])],
)
def test_twins_which_share_no_code_are_built_from_the_same_tables(family, tables):
    families.build(family, "chainer", {})  # makes Chainer importable
    torch, chainer = (
        importlib.import_module(f"models.{family}.{framework}_net")
        for framework in families.FRAMEWORKS
    )
    for table in tables:
        assert getattr(torch, table) == getattr(chainer, table)
    assert torch.nn.BatchNorm2d(1).eps == chainer.EPS


def test_a_family_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(
        UsageError, match=r"no model family 'alexnet'.*lenet, llama, mnist, resnet_cifar"
    ):
        families.recipe("alexnet")


def test_a_framework_a_family_has_no_definition_in_is_named():
    with pytest.raises(UsageError, match=r"mnist is not defined in chainer\. Use torch"):
        families.build("mnist", "chainer", {})


@pytest.mark.parametrize("framework", families.FRAMEWORKS)
@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("lenet", {"depth": 3}, "unexpected keyword argument 'depth'. Its arguments: classes"),
        ("lenet", {"classes": "ten"}, "LeNet raised TypeError"),
        ("resnet_cifar", {"depth": 21}, "depth 21 does not exist. It is 6n"),
        ("resnet_cifar", {"residual": "never"}, "residual 'never' does not exist"),
        ("resnet_imagenet", {"depth": 20}, r"depth 20 does not exist. Give one of \(18, 34"),
        ("resnet_imagenet", {"kind": "wide"}, "kind 'wide' does not exist"),
    ],
)
def test_arguments_that_do_not_exist_are_refused(framework, family, arguments, message):
    with pytest.raises((UsageError, ModelError), match=message):
        families.build(family, framework, arguments)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"heads": 3}, "3 heads do not divide width 64"), ({"patch": 5}, "patch 5 does not divide")],
)
def test_a_transformer_that_does_not_divide_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        families.build("transformer", "torch", arguments)
