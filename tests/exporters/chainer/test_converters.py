"""Converters of a model's own, for functions that onnx_chainer does not know."""

from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.exporters.chainer.test_exporter import chain
from tracer.api.export import export
from tracer.errors import ModelError, ThresholdError
from tracer.exporters.chainer.compat import chainer_ready
from tracer.graph import loading

chainer_ready()
chainer = pytest.importorskip("chainer")
F, L = chainer.functions, chainer.links


class Cube(chainer.FunctionNode):
    def forward(self, inputs):
        return (inputs[0] ** 3,)


class OldCube(chainer.Function):
    def forward(self, inputs):
        return (inputs[0] ** 3,)


def cubed(params):
    three = params.context.add_const(np.array(3, np.float32), "three")
    return (onnx.helper.make_node("Pow", [params.input_names[0], three], params.output_names),)


class Block(chainer.Chain):
    external_converters: ClassVar = {"Cube": cubed, "OldCube": cubed}

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(4, 4)

    def forward(self, x):
        return Cube().apply((self.fc(x),))[0] + OldCube()(x)


def check(model, path):
    x = np.random.default_rng(0).standard_normal((3, 4), np.float32)
    result = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
    np.testing.assert_allclose(result, model(x).array, rtol=1e-4, atol=1e-5)


def test_links_bring_converters_of_their_own_functions(tmp_path):
    model = chain(lambda self, x: F.relu(self.block(x)), block=Block())
    assert export(model, tmp_path / "m.onnx", input_shape=(2, 4)).dynamic_batch
    check(model, tmp_path / "m.onnx")
    nodes = [(node.op_type, node.module) for node in loading.load(tmp_path / "m.onnx").nodes]
    assert sorted(nodes) == [
        ("Add", "block"), ("Gemm", "block.fc"), ("Pow", "block"), ("Pow", "block"), ("Relu", ""),
    ]  # fmt: skip


def test_a_converter_of_the_model_replaces_any_other(tmp_path):
    def fused(params):
        return (
            onnx.helper.make_node(
                "FusedGemm", params.input_names, params.output_names,
                domain="com.microsoft", transB=1, activation="Relu",
            ),
        )  # fmt: skip

    model = chain(lambda self, x: F.relu(self.fc(x)), fc=L.Linear(4, 4))
    model.external_converters = {"LinearFunction": fused}
    model.external_opset_imports = {"com.microsoft": 1}
    export(model, tmp_path / "m.onnx", input_shape=(2, 4))
    check(model, tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx").graph.node[0].op_type == "FusedGemm"


def test_a_function_without_a_converter_is_named_with_what_to_do(tmp_path):
    model = chain(lambda self, x: Cube().apply((x,))[0])
    with pytest.raises(
        ModelError, match=r"no converter of Chainer's function Cube, called"
    ) as told:
        export(model, tmp_path / "m.onnx", input_shape=(2, 4))
    assert "tracer docs frameworks" in told.value.hint


def test_a_wrong_converter_is_found_out(tmp_path):
    model = chain(lambda self, x: Cube().apply((x,))[0])
    model.external_converters = {
        "Cube": lambda params: (
            onnx.helper.make_node("Abs", params.input_names, params.output_names),
        )
    }
    with pytest.raises(ThresholdError, match="the exported model differs from chainer"):
        export(model, tmp_path / "m.onnx", input_shape=(2, 4))
