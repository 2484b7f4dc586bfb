import sys
import textwrap

import pytest

from tracer.errors import InputError, ModelError, UsageError
from tracer.exporters.subject import load_source

torch = pytest.importorskip("torch")

NETS = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, width, depth=2, name="plain"):
            super().__init__()
            self.fc = nn.Linear(width, depth)
            self.name = name

    def small():
        return Net(3)

    ready = Net(5, 4)

    class Family:
        tiny = staticmethod(small)
        notes = "text"

    def text():
        return "not a model"

    def broken():
        raise RuntimeError("out of order")

    def leaving():
        raise SystemExit(1)

    def picky():
        from tracer.errors import UsageError

        raise UsageError("depth 7 does not exist", "Give 20")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with nets.py, of which no trace is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "nets.py").write_text(textwrap.dedent(NETS))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_class_with_arguments(here):
    net = load_source("nets.py:Net", {"width": 7, "name": "wide"})
    assert (tuple(net.fc.weight.shape), net.name) == ((2, 7), "wide")


@pytest.mark.parametrize(
    ("source", "shape"),
    [
        ("nets.py:small", (2, 3)),
        ("nets.py:ready", (4, 5)),
        ("nets.py:Family.tiny", (2, 3)),
        ("./nets.py:ready", (4, 5)),
        ("nets:small", (2, 3)),
    ],
)
def test_a_factory_an_instance_an_attribute_path_and_a_module(here, source, shape):
    assert tuple(load_source(source).fc.weight.shape) == shape


def test_weights_are_loaded(here):
    torch.save({"fc.weight": torch.ones(2, 3), "fc.bias": torch.ones(2)}, "w.pt")
    net = load_source("nets.py:small", weights=here / "w.pt")
    assert net.fc.weight.eq(1).all()


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("gone.py:Net", InputError, r"gone\.py: no such file"),
        ("gone.module:Net", InputError, r"there is no module 'gone\.module'"),
        (
            "nets.py:Nett",
            InputError,
            "nets.py has no 'Nett'. Did you mean 'Net'. It has Net",
        ),
        ("nets.py:Family.big", InputError, "'Family' has no 'big'"),
        ("nets.py", UsageError, "names no model. Add its name: nets.py:NAME. It has Net"),
        ("w.safetensors", UsageError, "These are weights: .*give w.safetensors"),
        ("nets.py:Net", UsageError, "needs arguments: width. Give --arg width=VALUE"),
        ("nets.py:text", UsageError, "object of type builtins.str is not a model"),
        ("nets.py:Family.notes", UsageError, "is str, not a model"),
        ("nets.py:broken", ModelError, "nets.py:broken raised RuntimeError: out of order"),
        ("nets.py:leaving", ModelError, "nets.py:leaving raised SystemExit: 1"),
        ("nets.py:picky", UsageError, "^depth 7 does not exist"),
        ("gone.pt2", InputError, r"gone\.pt2: no such file"),
    ],
)
def test_a_source_that_is_not_there_or_no_model(here, source, error, message):
    with pytest.raises(error, match=message):
        load_source(source)


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ("nets.py:Net", {"width": 3, "wide": 1}, "unexpected keyword.*Its arguments: width, depth"),
        ("nets.py:ready", {"width": 3}, "is an instance and takes no --arg"),
        ("nets.py:small", {"width": 3}, "unexpected keyword argument.*Its arguments: none"),
        ("some.pt2", {"width": 3}, "takes no --arg"),
    ],
)
def test_arguments_that_do_not_fit(here, source, arguments, message):
    with pytest.raises(UsageError, match=message):
        load_source(source, arguments)


def test_a_file_that_cannot_be_run_says_why(here):
    (here / "bad.py").write_text("import torch\n1 / 0\n")
    with pytest.raises(ModelError, match=r"bad\.py raised ZeroDivisionError: division by zero"):
        load_source("bad.py:Net")
    (here / "worse.py").write_text("def f(:\n")
    with pytest.raises(ModelError, match=r"worse\.py raised SyntaxError"):
        load_source("worse.py:f")


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("torch", r"needs 'torch', .*pip install 'tracer-onnx\[torch\]'"),
        ("helpers", "imports 'helpers', which is not installed.*PYTHONPATH"),
    ],
)
def test_a_package_that_is_not_found_says_what_to_do(here, monkeypatch, package, message):
    monkeypatch.setitem(sys.modules, package, None)
    (here / "needy.py").write_text(f"import {package}\n")
    with pytest.raises(UsageError, match=message) as caught:
        load_source("needy.py:Net")
    assert "pip install helpers" not in str(caught.value)


def test_a_file_may_import_what_lies_beside_it_but_its_folder_shadows_no_package(here):
    (here / "src").mkdir()
    (here / "src" / "beside.py").write_text("from nets import small\n")
    (here / "src" / "torch.py").write_text("1 / 0\n")
    (here / "src" / "net.py").write_text("import torch\nfrom beside import small\n")
    assert isinstance(load_source("src/net.py:small"), torch.nn.Module)


def test_a_package_that_reading_weights_needs_is_not_put_on_the_model(here, monkeypatch):
    (here / "w.safetensors").write_bytes(b"")
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"^reading .*w\.safetensors needs 'safetensors'"):
        load_source("nets.py:small", weights=here / "w.safetensors")


def test_a_file_in_a_package_may_import_its_neighbours(here):
    (here / "family").mkdir()
    (here / "family" / "__init__.py").touch()
    (here / "family" / "parts.py").write_text("from nets import small\n")
    # a file named like the framework is not taken for it
    (here / "family" / "torch.py").write_text("import torch\nfrom family.parts import small\n")
    assert isinstance(load_source("family/torch.py:small"), torch.nn.Module)


def test_a_chainer_model_is_made_though_chainer_does_not_import_by_itself(here):
    pytest.importorskip("six")
    pytest.importorskip("filelock")
    (here / "links.py").write_text("import chainer\nnet = chainer.links.Linear(3, 4)\n")
    with pytest.raises(UsageError, match=r"Add its name: links\.py:NAME\. It has net\."):
        load_source("links.py")
    assert load_source("links.py:net").W.shape == (4, 3)


def test_a_file_with_relative_imports_is_imported_from_any_folder(tmp_path, monkeypatch):
    """As part of its package, which its folders tell; a file without them is imported alone."""
    folder = tmp_path / "far" / "nets_of_others"
    (folder / "deep").mkdir(parents=True)
    for package in (folder, folder / "deep"):
        (package / "__init__.py").touch()
    (folder / "blocks.py").write_text("from torch import nn\nclass B(nn.Identity): pass\n")
    (folder / "deep" / "net.py").write_text("from ..blocks import B\nclass Net(B): pass\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    net = load_source(f"{folder / 'deep' / 'net.py'}:Net")
    assert type(net).__mro__[1].__module__ == "nets_of_others.blocks"
