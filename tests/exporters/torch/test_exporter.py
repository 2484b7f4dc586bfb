import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tracer.api.export import export
from tracer.errors import ModelError, ThresholdError
from tracer.exporters.pipeline import verify
from tracer.exporters.records import ExportOptions, InputSpec, draw
from tracer.exporters.torch.exporter import exporter
from tracer.graph import loading

torch = pytest.importorskip("torch")
nn = torch.nn


class Residual(nn.Module):
    """Convolution, batch normalization and a shortcut; pooling and a linear layer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.act = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        h = self.act(self.stem(x))
        h = self.act(self.bn(self.conv(h)) + h)
        return self.fc(torch.flatten(self.pool(h), 1))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 3)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)).mean(1))


def trained(module):
    """The module with statistics that are not the neutral ones of a fresh layer."""
    torch.manual_seed(0)
    for parameter in (*module.parameters(), *module.buffers()):
        if parameter.is_floating_point():
            parameter.data.uniform_(0.1, 0.5)
    return module


def line_of(text):
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The residual net exported with batch normalization folded and kept."""
    folder = tmp_path_factory.mktemp("residual")
    net = trained(Residual())
    for keep in (False, True):
        options = ExportOptions(keep_batchnorm=keep)
        export(net, folder / f"{keep}.onnx", input_shape=(1, 3, 8, 8), options=options)
    return net, folder


def operators(path):
    return [(node.op_type, node.module) for node in loading.load(path).nodes]


def test_batchnorm_is_folded_into_the_convolution_which_keeps_its_module(files):
    assert operators(files[1] / "False.onnx") == [
        ("Conv", "stem.0"),
        ("Relu", "act"),
        ("Conv", "conv"),
        ("Add", ""),
        ("Relu", "act"),
        ("MaxPool", "pool"),
        ("Reshape", ""),
        ("Gemm", "fc"),
    ]


def test_kept_batchnorm_is_one_node_of_its_module_and_no_clutter_is_left(files):
    assert operators(files[1] / "True.onnx") == [
        ("Conv", "stem.0"),
        ("BatchNormalization", "stem.1"),
        ("Relu", "act"),
        ("Conv", "conv"),
        ("BatchNormalization", "bn"),
        ("Add", ""),
        ("Relu", "act"),
        ("MaxPool", "pool"),
        ("Reshape", ""),
        ("Gemm", "fc"),
    ]


@pytest.mark.nightly
def test_kept_batchnorms_read_the_parameters_of_their_own_module(tmp_path):
    export(
        Residual(),  # fresh: every weight and variance is 1, every bias and mean is 0
        tmp_path / "m.onnx",
        input_shape=(1, 3, 8, 8),
        options=ExportOptions(keep_batchnorm=True),
    )
    for node in loading.load(tmp_path / "m.onnx").nodes:
        if node.op_type == "BatchNormalization":
            parts = ("weight", "bias", "running_mean", "running_var")
            assert list(node.inputs[1:]) == [f"{node.module}.{part}" for part in parts]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_onnxruntime_equals_torch_at_any_batch(files, keep, batch):
    net, folder = files
    x = torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch))
    result = onnxruntime.InferenceSession(folder / f"{keep}.onnx").run(None, {"x": x.numpy()})[0]
    with torch.no_grad():
        wanted = net.eval()(x).numpy()
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_every_node_has_the_line_of_the_users_code(files):
    nodes = loading.load(files[1] / "True.onnx").nodes
    add = next(node for node in nodes if node.op_type == "Add")
    line = line_of("self.bn(self.conv(h)) + h")
    assert add.source == f"tests/exporters/torch/test_exporter.py:{line}"
    assert all(node.source.startswith("tests/exporters/torch/") for node in nodes)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def opened(self, x):
        return self.inner(torch.tanh(x))

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.opened, lambda y: torch.sin(y) + 1, (x,))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.gate = Gate()

    def forward(self, x):
        return self.gate(self.first(self.again(self.first(x))))


@pytest.mark.nightly
def test_branches_belong_to_the_module_around_them_and_their_layers_to_themselves(tmp_path):
    export(Gated(), tmp_path / "m.onnx", input_shape=(1, 4))
    nodes = loading.load(tmp_path / "m.onnx").nodes
    inside = {node.op_type: node.module for node in nodes if node.scope.path}
    assert inside == {"Tanh": "gate", "Gemm": "gate.inner", "Sin": "gate", "Add": "gate"}
    (choice,) = (node for node in nodes if node.op_type == "If")
    assert {node.source for node in nodes if node.scope.path} == {choice.source}
    assert choice.source.endswith(f":{line_of('torch.cond(x.sum() > 0, self.opened')}")
    shared = Counter(node.module for node in nodes if not node.scope.path)
    assert (shared["first"], shared["again"]) == (2, 1)  # by the name it was called by


def test_no_absolute_path_and_no_metadata_of_torch_reach_the_file(files):
    for file in files[1].iterdir():
        content = file.read_bytes()
        assert b"pkg.torch" not in content
        assert str(Path(__file__).parent).encode() not in content
        assert str(Path(torch.__file__).parent).encode() not in content


@pytest.mark.nightly
def test_a_transformer_has_a_module_for_every_node(tmp_path):
    path = tmp_path / "m.onnx"
    record = export(Transformer(), path, input_shape=(1, 7), input_dtype="int64")
    nodes = loading.load(path).nodes
    assert record.batches == (1, 3)
    modules = Counter(node.module for node in nodes)
    assert None not in modules
    layers = {f"encoder.layers.{i}" for i in (0, 1)}
    assert {"embed", "head", *(f"{layer}.self_attn" for layer in layers)} <= modules.keys()
    assert sum(node.op_type == "LayerNormalization" for node in nodes) == 4


@pytest.mark.nightly
def test_the_model_is_exported_for_evaluation_and_left_in_its_modes(tmp_path):
    net = nn.Sequential(nn.Dropout(), nn.Linear(3, 3), nn.BatchNorm1d(3))
    net[2].eval()
    export(net, tmp_path / "m.onnx", input_shape=(2, 3))
    assert [module.training for module in net] == [True, True, False]
    assert "Dropout" not in dict(operators(tmp_path / "m.onnx"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("opset", [15, 18, 21])
def test_the_opset_asked_for_is_written(tmp_path, opset):
    path = tmp_path / "m.onnx"
    record = export(nn.ReLU(), path, input_shape=(2, 3), options=ExportOptions(opset=opset))
    assert record.opset == loading.load(path).opsets[""] == opset


@pytest.mark.nightly
def test_a_static_batch_is_a_number(tmp_path):
    options = ExportOptions(dynamic_batch=False)
    record = export(nn.ReLU(), tmp_path / "m.onnx", input_shape=(4, 3), options=options)
    assert (record.dynamic_batch, record.batches) == (False, (4,))


class Baked(nn.Module):
    def forward(self, x):
        return x + torch.ones(2, 3)


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(4, -1) + torch.zeros(4, 1)


class Single(nn.Module):
    def forward(self, x):
        if len(x) == 1:
            raise ValueError("one is too few")
        return x + 1


class InPlace(nn.Module):
    def forward(self, x, y):
        x += y
        return {"twice": x * 2, "less": y - 1}


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("not today")


class Leaves(nn.Module):
    def forward(self, x):
        sys.exit(5)


def test_a_batch_that_is_baked_in_names_the_input(tmp_path):
    with pytest.raises(
        ModelError, match=r"fixes the batch of its input 'x' at 2.*dynamic_batch=False"
    ):
        export(Baked(), tmp_path / "m.onnx", input_shape=(2, 3))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("net", "batch"), [(Fixed(), 4), (Single(), 1)])
def test_a_model_that_runs_at_its_traced_batch_alone_is_refused_with_the_batch(
    tmp_path, net, batch
):
    with pytest.raises(ModelError, match=r"options\.dynamic_batch=False") as caught:
        export(net, tmp_path / "m.onnx", input_shape=(batch, 3))
    assert "batch" in caught.value.what


def test_an_opset_that_the_model_does_not_reach_is_refused(tmp_path):
    options = ExportOptions(opset=13)
    with pytest.raises(ModelError, match=r"wrote opset 18 instead of 13.*an opset that old"):
        export(Mean(), tmp_path / "m.onnx", input_shape=(2, 3), options=options)


class Branches(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def test_a_branch_on_values_is_named_with_its_line(tmp_path):
    line = Branches.forward.__code__.co_firstlineno + 1
    with pytest.raises(ModelError, match=rf"cannot export Branches: .*_exporter\.py:{line}\)") as e:
        export(Branches(), tmp_path / "m.onnx", input_shape=(2, 3))
    assert "torch.where or torch.cond" in e.value.hint


class Pair:
    def __init__(self, first):
        self.first = first


class Hides(nn.Module):
    def forward(self, x):
        return Pair(x)


def test_an_output_that_is_no_tensor_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"cannot export Hides: .* returns, Pair\. Have it return"):
        export(Hides(), tmp_path / "m.onnx", input_shape=(2, 3))


def test_a_cache_among_outputs_is_named_with_what_leaves_it_out(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    ids = {"input_shape": (1, 8), "input_dtype": "int64"}
    with pytest.raises(ModelError, match=r"DynamicCache\. .*: model\.config\.use_cache = False"):
        export(model, tmp_path / "m.onnx", **ids)
    model.config.use_cache = False
    assert export(model, tmp_path / "m.onnx", **ids).nodes


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def test_several_inputs_outputs_by_name_and_changes_in_place(tmp_path):
    export(InPlace(), tmp_path / "m.onnx", input_shape=[(2, 3), (2, 3)])
    model = loading.load(tmp_path / "m.onnx")
    assert [value.name for value in model.inputs] == ["x", "y"]
    assert len(model.graph.output) == 2


def test_an_error_of_the_models_own_is_passed_on(tmp_path):
    own = r"Raises does not run on 2x3: ValueError: not today \(.*test_exporter\.py:\d+\)"
    with pytest.raises(ModelError, match=own):
        export(Raises(), tmp_path / "m.onnx", input_shape=(2, 3))
    with pytest.raises(ModelError, match=r"Leaves ends the program \(sys.exit\)"):
        export(Leaves(), tmp_path / "m.onnx", input_shape=(2, 3))


@pytest.mark.nightly
def test_a_spoilt_weight_is_traced_to_the_module_it_belongs_to():
    conversion = exporter.convert(trained(Residual()), [InputSpec((2, 3, 8, 8))], ExportOptions())
    spoilt = next(w for w in conversion.proto.graph.initializer if w.name == "fc.weight")
    spoilt.raw_data = np.zeros(spoilt.dims, np.float32).tobytes()
    arrays = draw(conversion.inputs, 0)
    with pytest.raises(ThresholdError, match=r"differs is 'node_linear' \(Gemm\) of module 'fc', "):
        verify(conversion, arrays, ExportOptions(), "torch")


NOISY = """
import sys, torch
from tracer.api.export import export
from tests.exporters.torch.test_exporter import Raises, Residual
export(Residual(), sys.argv[1], input_shape=(1, 3, 8, 8))
try:
    export(Raises(), sys.argv[1] + "2.onnx", input_shape=(1, 3))
except Exception:
    pass
"""


@pytest.mark.nightly
def test_the_exporter_says_and_leaves_nothing(tmp_path):
    (tmp_path / "temporary").mkdir()
    around = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    around.pop("TORCHINDUCTOR_CACHE_DIR", None)
    command = [sys.executable, "-c", NOISY, str(tmp_path / "m.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=around)
    assert (done.stdout, done.stderr) == ("", "")
    assert not any((tmp_path / "temporary").iterdir())
