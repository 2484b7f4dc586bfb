import numpy as np
import onnxruntime
import pytest

from tests.exporters.chainer.test_exporter import chain
from tracer.api.export import export
from tracer.errors import ModelError
from tracer.exporters.chainer.compat import chainer_ready
from tracer.exporters.records import ExportOptions
from tracer.graph import loading

chainer_ready()
chainer = pytest.importorskip("chainer")
F, L = chainer.functions, chainer.links


def floored(self, x):
    return F.relu(F.floor(x)) * x


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (floored, r"Chainer's 'floor' at .*:\d+ gives .* node 'ReLU_0' \(Relu\) at .*:\d+ reads"),
        (lambda self, x: x // 2, r"Chainer's 'floordiv' at .*:\d+ gives .* output 0 of the model"),
        (
            lambda self, x: x - chainer.Variable(np.full(x.shape, F.mean(x).array)),
            r"Chainer's 'Variable' at .*:\d+ gives .* node 'Sub_0' \(Sub\)",
        ),
        (lambda self, x: F.relu(x.array), r"the array given to Chainer's 'relu' at .*:\d+"),
        (lambda self, x: F.relu(x) if x.array.sum() > 1 else F.tanh(x), "another graph"),
    ],
)
def test_a_value_that_no_function_computes_is_named_with_where_it_comes_from(
    tmp_path, forward, message, dynamic
):
    options = ExportOptions(dynamic_batch=dynamic)
    with pytest.raises(ModelError, match=message):
        export(chain(forward), tmp_path / "m.onnx", input_shape=(2, 4), options=options)
    assert list(tmp_path.iterdir()) == []


def test_a_constant_of_the_models_own_is_a_constant(tmp_path):
    model = chain(lambda self, x: x * np.arange(4, dtype="f"))
    export(model, tmp_path / "m.onnx", input_shape=(2, 4))
    x = np.ones((3, 4), "f")
    result = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})[0]
    assert result.tolist() == [[0, 1, 2, 3]] * 3


def test_outputs_keep_the_order_in_which_the_model_gives_them(tmp_path):
    def forward(self, x):
        late = F.relu(F.exp(x))
        return {"z": late, "a": F.tanh(x), "input": x, "again": late}

    export(chain(forward), tmp_path / "m.onnx", input_shape=(2, 4))
    x = np.ones((3, 4), "f")
    result = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    for output, wanted in zip(result, (np.exp(x), np.tanh(x), x, np.exp(x)), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-6)


def test_a_model_may_ask_its_input_for_its_array(tmp_path):
    model = chain(lambda self, x: F.reshape(x, (len(x.array), x.data[0].size)))
    assert export(model, tmp_path / "m.onnx", input_shape=(2, 2, 3)).dynamic_batch


class Called(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(4, 3)

    def __call__(self, image):
        return self.fc(image)


class Both(Called):
    def forward(self, x, y):
        raise NotImplementedError


@pytest.mark.parametrize("kind", [Called, Both])
def test_a_model_may_define_call_in_place_of_forward(tmp_path, kind):
    export(kind(), tmp_path / "m.onnx", input_shape=(2, 4))
    model = loading.load(tmp_path / "m.onnx")
    assert [value.name for value in model.inputs] == ["image"]
    assert [node.module for node in model.nodes] == ["fc"]
