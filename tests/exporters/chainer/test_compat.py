import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tracer.errors import UsageError
from tracer.exporters.chainer import compat
from tracer.exporters.chainer.compat import chainer_ready

chainer_ready()
chainer = pytest.importorskip("chainer")

# What others see of numpy and onnx, before and after Chainer was imported and used. scipy, which
# Chainer imports, has numpy load its lazy submodules, so they are loaded first.
USE = """
import json, sys, warnings
warnings.simplefilter("error")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from numpy import *
import numpy, onnx, onnx.reference, onnx.version_converter

def seen():
    return {
        "numpy": {name: id(value) for name, value in numpy.__dict__.items()},
        "onnx": {name: id(value) for name, value in onnx.__dict__.items()},
        "modules": [m for m in sys.modules if m in ("onnx.mapping", "pkg_resources")]
        + [m for m in sys.modules if m.startswith("numpy.distutils")],
    }

before = seen()
from tracer.exporters.chainer.compat import chainer_ready
chainer_ready()
import chainer, onnx_chainer
x = numpy.ones((2, 3, 4, 4), "f")
link = chainer.links.Convolution2D(3, 2, 1)
y = chainer.functions.resize_images(link(x), (7, 7))
z = chainer.functions.as_strided(y, (2, 2), (1, 1))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    onnx_chainer.export(link, x)
print(json.dumps([before, seen()]))
"""


@pytest.fixture(scope="module")
def used():
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done, *json.loads(done.stdout)


@pytest.mark.nightly
def test_numpy_and_onnx_are_as_before_for_everybody_else(used):
    _, before, after = used
    assert after == before
    assert "onnx.mapping" not in after["modules"]


def test_chainer_is_imported_without_a_warning_or_another_word(used):
    done, _, _ = used
    assert done.stderr == ""


def test_chainer_sees_the_real_numpy():
    from chainer.functions.array import as_strided, resize_images

    assert resize_images.numpy is np
    assert as_strided.np is np
    assert chainer.backend.get_array_module(np.ones(1)) is np


def lost_names():
    """Every attribute of numpy that Chainer's source mentions and numpy does not have."""
    for folder in ("chainer", "onnx_chainer"):
        root = Path(chainer.__file__).parent.parent / folder
        for file in root.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id in ("np", "numpy")
                    and not hasattr(np, node.attr)
                ):
                    module = ".".join(file.relative_to(root.parent).with_suffix("").parts)
                    yield module, node.attr


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_every_name_that_numpy_lost_and_chainer_uses_is_given_back_where_it_is_used():
    lost = set(lost_names()) - {("chainer._environment_check", "distutils")}
    assert lost
    assert {name for _, name in lost} == set(compat.lost_from_numpy())
    assert {module for module, _ in lost} == set(compat._NUMPY_1_USERS)


@pytest.mark.filterwarnings("ignore")
def test_functions_that_used_lost_names_work_forward_and_backward():
    x = chainer.Variable(np.arange(16, dtype="f").reshape(1, 1, 4, 4))
    chainer.functions.sum(chainer.functions.resize_images(x, (7, 7))).backward()
    assert x.grad.sum() == pytest.approx(49)
    v = chainer.Variable(np.arange(4, dtype="f"))
    chainer.functions.sum(chainer.functions.as_strided(v, (2, 2), (1, 1))).backward()
    assert v.grad.tolist() == [1, 2, 1, 0]


def test_a_missing_chainer_names_the_line_that_installs_it(monkeypatch):
    for name in [name for name in sys.modules if compat._is_chainers(name)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.machinery.PathFinder.find_spec", lambda *_: None)
    with pytest.raises(UsageError, match=r"pip install .* chainer==7\.8\.1"):
        compat.load()


@pytest.mark.nightly
def test_an_import_that_failed_before_is_repaired():
    code = """
import sys, warnings
warnings.simplefilter("ignore")
try:
    import chainer
except Exception:
    assert any(name.startswith("chainer.") for name in sys.modules)
from tracer.exporters.chainer.compat import load
assert load().__version__ == "7.8.1"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
