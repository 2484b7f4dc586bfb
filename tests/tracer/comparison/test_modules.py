"""Modules in files of the user's, without `input_shape`, compared with their own exports."""

import importlib
import json
from importlib.util import find_spec
from itertools import product
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import tracer.cli
from tests.examples import at_night

if not (find_spec("torch") and find_spec("chainer")):
    pytest.skip("torch or Chainer is not installed", allow_module_level=True)

QUICK = ("--threads", "1", "--sessions", "2", "--precision", "100%")

WEIGHTS = """
import chainer, chainer.functions as F, chainer.links as L
import numpy as np, torch
from torch import nn

print("loading what prints")
values = np.random.default_rng(7)
A, B, C = (values.normal(size=shape).astype(np.float32) / 4 for shape in SHAPES)

def filled(module, *weights):
    for layer, weight in zip(module.children(), weights):
        layer.weight.data = torch.tensor(weight)
        if getattr(layer, "bias", None) is not None:
            layer.bias.data = torch.full_like(layer.bias, 0.1)
    return module
"""

MLP = (
    """
SHAPES = ((16, 8), (16, 16), (4, 16))
"""
    + WEIGHTS
    + """
class Torch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        filled(self, A, B, C)
    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.relu(self.a(x)))))

class Chainer(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.a = L.Linear(8, 16, initialW=A, initial_bias=0.1)
            self.b = L.Linear(16, 16, initialW=B, initial_bias=0.1)
            self.c = L.Linear(16, 4, initialW=C, initial_bias=0.1)
    def forward(self, x):
        return self.c(F.tanh(self.b(F.relu(self.a(x)))))
"""
)

TWO_INPUTS = (
    """
SHAPES = ((6, 3, 3, 3), (6, 2, 1, 1), (5, 12))
"""
    + WEIGHTS
    + """
class Torch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(2, 6, 1), nn.Linear(12, 5)
        filled(self, A, B, C)
    def forward(self, image, depth):
        joined = torch.cat([torch.relu(self.a(image)), self.b(depth)], 1)
        return self.c(joined.mean((2, 3)))

class Chainer(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.a = L.Convolution2D(3, 6, 3, pad=1, initialW=A, initial_bias=0.1)
            self.b = L.Convolution2D(2, 6, 1, initialW=B, initial_bias=0.1)
            self.c = L.Linear(12, 5, initialW=C, initial_bias=0.1)
    def forward(self, image, depth):
        joined = F.concat([F.relu(self.a(image)), self.b(depth)], 1)
        return self.c(F.average(joined, axis=(2, 3)))
"""
)

TOKENS = (
    """
SHAPES = ((50, 16), (32, 16), (3, 32))
"""
    + WEIGHTS
    + """
class Torch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Embedding(50, 16), nn.Linear(16, 32), nn.Linear(32, 3)
        filled(self, A, B, C)
    def forward(self, ids):
        return self.c(torch.relu(self.b(self.a(ids).mean(1))))

class Chainer(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.a = L.EmbedID(50, 16, initialW=A)
            self.b = L.Linear(16, 32, initialW=B, initial_bias=0.1)
            self.c = L.Linear(32, 3, initialW=C, initial_bias=0.1)
    def forward(self, ids):
        return self.c(F.relu(self.b(F.average(self.a(ids), axis=1))))
"""
)

NETWORKS = {
    "mlp": (MLP, [(1, 8)], "float32", 8 * 16 + 16 * 16 + 16 * 4),
    "two": (TWO_INPUTS, [(1, 3, 6, 6), (1, 2, 6, 6)], "float32", 36 * (6 * 27 + 6 * 2) + 60),
    "tokens": (TOKENS, [(1, 12)], "int64", 16 * 32 + 32 * 3),
}
"""Code, shapes of the inputs, their type, and multiplications by hand."""


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    """For each network its file, its export by torch, and its multiplications."""
    from tracer.api.export import export

    folder = tmp_path_factory.mktemp("nets")
    made = {}
    for name, (code, shapes, dtype, macs) in NETWORKS.items():
        file, model = folder / f"{name}.py", folder / f"{name}.onnx"
        file.write_text(code)
        export(f"{file}:Torch", model, input_shape=shapes, input_dtype=dtype)
        made[name] = SimpleNamespace(file=file, model=model, macs=macs, shapes=shapes)
    return made


def run(capfd, *args):
    """Exit code, stdout and stderr of a comparison."""
    code = tracer.cli.main(["compare", *(str(arg) for arg in args), *QUICK])
    out = capfd.readouterr()
    return code, out.out, out.err


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", at_night(NETWORKS, but=["mlp", "tokens"]))
def test_a_module_its_export_and_its_twin_in_chainer_agree(nets, capfd, name):
    net = nets[name]
    sides = (net.model, f"{net.file}:Torch@torch", f"{net.file}:Chainer@chainer",
             f"{net.model}@interpreter")  # fmt: skip
    code, out, err = run(capfd, *sides, "--batch", "2", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert [numbers["first_divergence"] for numbers in result["numbers"]] == [None] * 3
    assert all(numbers["layers"] for numbers in result["numbers"])
    totals = result["totals"]
    assert [row["batch"] for row in totals] == [2] * 4
    assert [row["macs"] for row in totals] == [2 * net.macs] * 4
    assert len({row["params"] for row in totals}) == 1
    assert all(row["flops_per_s"] > 0 for row in totals)
    assert not any("not compared" in note for note in result["notes"])


@pytest.mark.nightly
def test_a_weight_that_is_perturbed_is_a_difference_and_exit_code_1(nets, capfd, tmp_path):
    net = nets["mlp"]
    proto = onnx.load(net.model)
    weight = next(w for w in proto.graph.initializer if list(w.dims) == [16, 16])
    values = onnx.numpy_helper.to_array(weight).copy()
    values[3] += 0.05
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(proto, tmp_path / "changed.onnx")
    sides = (tmp_path / "changed.onnx", f"{net.file}:Torch@torch")
    code, out, _ = run(capfd, *sides)
    assert code == 1
    assert "1 of 6 weights of mlp.py:Torch@torch are not in changed.onnx" in " ".join(out.split())
    assert "--weights torch=FILE" in out
    code, out, _ = run(capfd, *sides, "--no-numbers")
    assert code == 0
    assert "Numbers of" not in out


@pytest.mark.nightly
def test_a_framework_may_come_first_and_the_onnx_model_sets_its_input(nets, capfd):
    net = nets["two"]
    code, out, _ = run(capfd, f"{net.file}:Torch@torch", f"{net.model}@interpreter", "--json")
    result = json.loads(out)
    assert code == 0
    assert [row["macs"] for row in result["totals"]] == [net.macs] * 2


@pytest.mark.nightly
def test_shapes_are_given_where_no_side_declares_them(nets, capfd, tmp_path):
    net = nets["two"]
    sides = (f"{net.file}:Torch@torch", f"{net.file}:Chainer@chainer")
    code, _, err = run(capfd, *sides)
    assert code == 2 and "--input-shape" in err
    shapes = ("--input-shape", "3,3,5,5", "--input-shape", "3,2,5,5")
    code, out, _ = run(capfd, *sides, *shapes, "--json")
    result = json.loads(out)
    assert code == 0
    assert [row["batch"] for row in result["totals"]] == [3, 3]
    assert result["numbers"][0]["first_divergence"] is None
    arrays = [np.ones((4, channels, 5, 5), np.float32) for channels in (3, 2)]
    np.savez(tmp_path / "x.npz", image=arrays[0], depth=arrays[1])
    code, out, _ = run(capfd, *sides, "--inputs", tmp_path / "x.npz", "--json")
    assert code == 0
    assert [row["batch"] for row in json.loads(out)["totals"]] == [4, 4]


@pytest.mark.nightly
def test_shapes_set_the_symbols_of_an_onnx_model(nets, capfd):
    net = nets["mlp"]
    sides = (net.model, f"{net.file}:Torch@torch")
    _, out, _ = run(capfd, *sides, "--input-shape", "5,8", "--json")
    assert [row["batch"] for row in json.loads(out)["totals"]] == [5, 5]
    code, _, err = run(capfd, *sides, "--input-shape", "5,9")
    assert code == 3 and "fixed at 8, not 9" in err
    code, _, err = run(capfd, *sides, "--input-shape", "5,8", "--input-shape", "5,8")
    assert code == 3 and "2 shapes are given" in err


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "first"),
    at_night(product(NETWORKS, (True, False)), but=[("mlp", True), ("tokens", False)]),
)
def test_an_export_on_the_fly_gets_the_inputs_of_the_onnx_file(nets, capfd, name, first):
    net = nets[name]
    sides = [f"{net.file}:Torch@ort", net.model]
    dims = () if name == "mlp" else ("--dim", "batch=3")
    code, out, err = run(capfd, *sides[:: 1 if first else -1], *dims, "--json")
    assert code == 0, err
    result = json.loads(out)
    batch = 3 if dims else 1
    assert [row["macs"] for row in result["totals"]] == [batch * net.macs] * 2
    assert result["numbers"][0]["first_divergence"] is None


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    at_night(
        [("mlp", "3,8", "float32"), ("tokens", "3,12", "int64")], but=[("tokens", "3,12", "int64")]
    ),
)
def test_shapes_and_types_reach_an_export_on_the_fly(nets, capfd, name, shape, dtype):
    net = nets[name]
    sides = (f"{net.file}:Torch@ort", f"{net.file}:Torch", f"{net.file}:Chainer@interpreter")
    options = ("--input-shape", shape, "--input-dtype", dtype)
    code, out, err = run(capfd, *sides, *options, "--json")
    assert code == 0, err
    result = json.loads(out)
    executors = [row["executor"] for row in result["totals"]]
    assert executors == ["onnxruntime", "torch", "reference"]
    assert [row["batch"] for row in result["totals"]] == [3] * 3
    assert [one["first_divergence"] for one in result["numbers"]] == [None] * 2
    code, _, err = run(capfd, *sides[:2])
    assert code == 2
    assert "--input-shape 1,3,32,32" in err


@pytest.mark.nightly
def test_weights_of_each_framework_make_trained_sides_equal(nets, capfd, tmp_path):
    import torch

    from tracer.exporters.chainer import compat
    from tracer.exporters.subject import load_source

    chainer = compat.load()
    untrained = tmp_path / "untrained.py"
    untrained.write_text(nets["mlp"].file.read_text().replace("default_rng(7)", "default_rng()"))
    trained = [load_source(f"{nets['mlp'].file}:{name}") for name in ("Torch", "Chainer")]
    torch.save(trained[0].state_dict(), tmp_path / "w.pt")
    chainer.serializers.save_npz(tmp_path / "w.npz", trained[1])
    sides = (nets["mlp"].model, f"{untrained}:Torch@torch", f"{untrained}:Chainer@chainer")
    weights = (
        "--weights",
        f"torch={tmp_path / 'w.pt'}",
        "--weights",
        f"chainer={tmp_path / 'w.npz'}",
    )
    assert run(capfd, *sides, *weights)[0] == 0
    exports = (f"{untrained}:Torch@ort", f"{untrained}:Chainer@ort", f"{untrained}:Torch@torch")
    assert run(capfd, sides[0], *exports, *weights)[0] == 0
    assert run(capfd, sides[0], *exports)[0] == 1


def test_a_file_of_weights_for_a_framework_that_no_side_has_is_refused(nets, capfd):
    sides = (nets["mlp"].model, f"{nets['mlp'].file}:Torch@ort")
    code, _, err = run(capfd, *sides, "--weights", "chainer=w.npz")
    assert code == 2
    assert "--weights chainer=… would do nothing" in err


@pytest.mark.nightly
def test_random_weights_are_those_of_the_export(capfd, tmp_path):
    from tracer.api.export import export

    file = tmp_path / "fresh.py"
    file.write_text("import torch\n\nclass Net(torch.nn.Linear):\n"
                    "    def __init__(self):\n        super().__init__(6, 3)\n")  # fmt: skip
    export(f"{file}:Net", tmp_path / "fresh.onnx", input_shape=(1, 6))
    sides = (tmp_path / "fresh.onnx", f"{file}:Net@torch")
    assert run(capfd, *sides)[0] == 0
    code, out, _ = run(capfd, *sides, "--seed", "1")
    assert code == 1
    assert "2 of 2 weights of fresh.py:Net@torch are not in fresh.onnx" in " ".join(out.split())


BAD = """
import torch
from torch import nn

class Arguments(nn.Module):
    def __init__(self, width): super().__init__()
class Two(nn.Module):
    def forward(self, a, b): return a + b
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(9, 3)
    def forward(self, x): return self.layer(x)
class Raising(nn.Module):
    def forward(self, x): raise RuntimeError("a bang")
def three(): return 3
text = "x"
class Guarded(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
    def forward(self, x):
        y = self.layer(x)
        return y if y.sum().item() > -1e9 else -y
"""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("Arguments@torch", 2, "needs arguments: width"),
        ("Two@torch", 3, "takes (a, b), and the inputs are float32[1,8]"),
        ("Wide@torch", 3, "does not run on float32[1,8]"),
        ("Raising@torch", 3, "a bang"),
        ("three@torch", 2, "not a torch model"),
        ("Two@chainer", 2, "not a chainer model"),
        ("text@torch", 2, "not a model"),
        ("Absent@torch", 3, "has no 'Absent'"),
        ("Two@torch:cud", 2, "there is no device 'cud'. Did you mean 'cuda'?"),
        ("Two", 3, "takes (a, b), and the inputs are float32[1,8]"),
        ("Arguments@ort", 2, "needs arguments: width"),
        ("Wide@ort", 3, "Wide does not run on 2x8"),
    ],
)
def test_what_cannot_be_compared_is_one_line_that_names_file_and_class(
    nets, capfd, tmp_path, name, code, message
):
    (tmp_path / "bad.py").write_text(BAD)
    exit_code, out, err = run(capfd, nets["mlp"].model, f"{tmp_path / 'bad.py'}:{name}")
    (line,) = [line for line in err.splitlines() if line]
    assert (exit_code, out) == (code, "")
    assert message in line
    assert f"bad.py:{name.partition('@')[0]}" in line


def test_a_module_that_cannot_be_exported_is_compared_by_its_outputs(nets, capfd, tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    sides = (nets["mlp"].model, f"{tmp_path / 'bad.py'}:Guarded@torch")
    code, out, _ = run(capfd, *sides, "--json")
    result = json.loads(out)
    (numbers,) = result["numbers"]
    assert code == 1
    assert numbers["layers"] == [] and numbers["outputs"][0]["fault"]
    assert any(note.startswith("only outputs are compared") for note in result["notes"])


@pytest.mark.nightly
def test_the_device_of_a_side_is_named_behind_its_framework(nets, capfd):
    net, torch = nets["mlp"], importlib.import_module("torch")
    shape = ("--input-shape", "1,8")
    sides = (f"{net.file}:Torch@torch", f"{net.file}:Torch@torch:cpu")
    code, out, _ = run(capfd, *sides, *shape, "--json")
    result = json.loads(out)
    assert code == 0
    assert [side["label"] for side in result["sides"]] == ["mlp.py:Torch@torch",
                                                           "mlp.py:Torch@torch:cpu"]  # fmt: skip
    assert all(layer["max_abs"] == 0 for layer in result["numbers"][0]["layers"])
    if not torch.cuda.is_available():
        code, _, err = run(capfd, sides[0], f"{net.file}:Torch@torch:cuda", *shape)
        assert code == 2 and "torch sees no CUDA device" in err


def test_a_type_of_input_is_refused_where_the_onnx_model_declares_it(nets, capfd):
    net = nets["mlp"]
    code, _, err = run(capfd, net.model, f"{net.file}:Torch@torch", "--input-dtype", "float64")
    assert code == 2 and "--input-dtype would do nothing" in err


def test_values_of_other_networks_are_a_line_and_the_first_layers(
    nets, capfd, monkeypatch, tmp_path
):
    other = tmp_path / "other.py"
    other.write_text(nets["mlp"].file.read_text().replace("default_rng(7)", "default_rng(8)"))
    shown = {}
    for width, options in ((80, ()), (160, ("--notes",))):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, _ = run(capfd, nets["mlp"].model, f"{other}:Torch@torch", *options)
        lines = out[out.index("Numbers of") :].splitlines()
        assert code == 1
        assert max(map(len, lines)) <= width
        assert "3 of 5 layers compute something else on the values of A" in " ".join(out.split())
        shown[width] = sum(line.startswith(" layer ") for line in lines)
    assert shown == {80: 3, 160: 3}  # the three Linear; Relu and Tanh are the same
