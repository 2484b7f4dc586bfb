"""Sides in another release of onnxruntime: where it comes from, and that it is what runs."""

import hashlib
import io
import json
import os
import sys
import zipfile
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path

import onnx
import onnxruntime
import pytest

import tracer
from tests.graphs import residual
from tests.releases import plant_release
from tracer.api.compare import SideSettings
from tracer.api.compare.naming import parse
from tracer.api.compare.sides import FrameworkSide, RemoteModule, RemoteSide
from tracer.containment.calls import RemoteProcess
from tracer.errors import InputError, UsageError
from tracer.executors.releases import Release
from tracer.support.tolerance import Tolerance

QUICK = SideSettings(threads=1, sessions=4, precision=1.0)
OTHER = "1.0.7"
"""A release that never was."""

TORCH = """
import torch

class Net(torch.nn.Module):
    input_shape = (8,)

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        torch.nn.init.constant_(self.linear.weight, 0.5)

    def forward(self, x):
        print("it ran")
        return self.linear(x)
"""


def quiet(done, total, what):
    """Reports nothing."""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(residual(), path)
    return str(path)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """pip's only source: a folder with a wheel of onnxruntime 1.30.7 that has a single line."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    dist = "onnxruntime-1.30.7.dist-info"
    with zipfile.ZipFile(folder / "onnxruntime-1.30.7-py3-none-any.whl", "w") as wheel:
        wheel.writestr("onnxruntime/__init__.py", "__version__ = '1.30.7'\n")
        wheel.writestr(
            f"{dist}/METADATA", "Metadata-Version: 2.1\nName: onnxruntime\nVersion: 1.30.7\n"
        )
        wheel.writestr(
            f"{dist}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{dist}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    constraints = tmp_path / "constraints.txt"  # of what is installed here, as people have them
    constraints.write_text("onnxruntime==1.31.1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraints))
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[global]\nconstraint = {constraints}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The installed onnxruntime under another version, as if it were installed as that release.

    The cache is one for all tests: what is measured of the machine is kept there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        plant_release(OTHER)
        yield


@pytest.mark.nightly
def test_a_release_is_installed_once_with_its_hash(cache, index):
    release = Release("1.30.7")
    folder = Path(*release.folders(quiet))
    assert folder.is_relative_to(cache)
    (wheel,) = index.iterdir()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert json.loads((folder / "release.json").read_text()) == {wheel.name: digest}
    wheel.unlink()  # afterwards nothing is downloaded
    assert release.folders(quiet) == [str(folder)]
    with RemoteProcess(release.folders(quiet)) as process:
        assert process.call(version_there) == "1.30.7"


def version_there():
    """Returns the version that a process imports."""
    import onnxruntime as there

    return there.__version__


@pytest.mark.nightly
def test_what_pip_offers_is_listed(cache, index):
    with pytest.raises(InputError, match=r"1.29.1 has no wheel for .* There are 1.30.7"):
        Release("1.29.1").folders(quiet)
    assert not list((cache / "tracer/releases").iterdir())


def test_a_release_that_cannot_be_had_is_an_error(cache, index):
    for wheel in index.iterdir():
        wheel.unlink()
    with pytest.raises(InputError, match=r"1.29.1 cannot be downloaded: Could not find a version"):
        Release("1.29.1").folders(quiet)


@pytest.mark.nightly
def test_a_release_of_another_package_is_its_own(cache, index):
    with pytest.raises(InputError, match=r"openvino 1.30.7 cannot be downloaded"):
        Release("1.30.7", "openvino").folders(quiet)


def test_a_side_without_its_package_names_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UsageError, match=r"pip install 'tracer-onnx\[openvino\]'"):
        tracer.profile(model, executor="openvino")


def test_the_installed_release_is_taken_as_it_is(cache):
    assert Release(metadata.version("onnxruntime")).folders(quiet) == []


@pytest.mark.nightly
@pytest.mark.usefixtures("other")
def test_a_side_runs_in_its_release_at_its_level(model):
    sides = [f"{model}@ort=={OTHER}:none", f"{model}@ort:none"]
    comparison = tracer.compare(sides, tolerance=Tolerance(), settings=QUICK)
    packages = [side.trace.environment.packages["onnxruntime"] for side in comparison.sides]
    assert packages == [OTHER, onnxruntime.__version__]
    assert any("onnxruntime differs" in note for note in comparison.notes)
    assert [side.run.optimization for side in comparison.sides] == ["none", "none"]
    assert len(comparison.layers) == len(onnx.load(model).graph.node)
    assert comparison.passed


@pytest.mark.nightly
def test_a_module_runs_in_its_release_of_torch(tmp_path, cache, capfd):
    """And what its code prints is no data."""
    torch = pytest.importorskip("torch")
    plant_release("2.0.7", package=torch)
    source = f"{tmp_path / 'net.py'}:Net"
    (tmp_path / "net.py").write_text(TORCH)
    settings = replace(QUICK, input_shape=((1, 8),))
    installed = torch.__version__.partition("+")[0]
    sides = [f"{source}@torch==2.0.7", f"{source}@torch=={installed}"]
    comparison = tracer.compare(sides, tolerance=Tolerance(), settings=settings)
    packages = [side.trace.environment.packages["torch"] for side in comparison.sides]
    assert packages == ["2.0.7", torch.__version__]
    assert any("torch differs" in note for note in comparison.notes)
    (numbers,) = comparison.numbers
    assert not numbers.differ and "linear" in set(comparison.layers["module"])
    told = capfd.readouterr()
    assert "it ran" not in told.out and "it ran" in told.err


@pytest.mark.nightly
@pytest.mark.usefixtures("other")
def test_scores_are_those_of_the_release():
    model = "models/lenet/lenet.int8.onnx"
    sides = [f"{model}@ort=={OTHER}", model]
    comparison = tracer.compare(
        sides, by="model", test="digits", test_limit=32, metrics=["top1"], settings=QUICK
    )
    (second,) = comparison.scores
    assert second.value == second.first_value > 0.9


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("@ort==new", "'new' is no release of onnxruntime"),
        ("@openvino==new", "'new' is no release of openvino"),
        ("@interpreter==1.2.0", "'interpreter' takes no release"),
        ("@chainer==7.8.0", "'chainer' takes no release"),
        ("@ort==", "'' is no release"),
    ],
)
def test_what_is_no_release_is_refused(model, side, message):
    with pytest.raises(UsageError, match=message):
        tracer.compare([model + side, model], settings=QUICK)


@pytest.mark.usefixtures("other")
def test_bits_are_those_of_the_installed_release(model):
    with pytest.raises(UsageError, match="bits are compared in the onnxruntime that is installed"):
        tracer.compare_bits([f"{model}@ort=={OTHER}", model])


def test_an_error_there_is_raised_here():
    with RemoteProcess() as process:
        with pytest.raises(ZeroDivisionError):
            process.call(divmod, 1, 0)
        with process.opened(io.StringIO, "text") as opened:
            assert opened.call("read") == "text"


def test_a_side_in_another_process_is_the_same_side_there_whatever_its_kind(model, tmp_path):
    (tmp_path / "net.py").write_text(TORCH)
    module = FrameworkSide("Net", f"{tmp_path / 'net.py'}:Net", "torch")
    ran = {RemoteSide: (parse(model), "onnxruntime"), RemoteModule: (module, "torch")}
    with RemoteProcess() as process:
        process.call(os.dup2, 2, 1)  # what code prints is no data
        for kind, (side, executor) in ran.items():
            own = {each.name: getattr(side, each.name) for each in fields(side)}
            remote = kind(**own, process=process)
            assert remote.local == side
            assert type(remote.local) is type(side)
            assert remote.run(QUICK).runs[0].executor == executor
            with remote.runner(QUICK).whole_runs() as opened:
                assert opened.timed() > 0
