"""Exports whose weights are in a file of their own, as those of large models are."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tracer.api.export import export
from tracer.errors import ThresholdError, UsageError
from tracer.exporters import pipeline
from tracer.exporters.chainer.compat import chainer_ready
from tracer.exporters.subject import Code
from tracer.interpreter.interpreter import Interpreter

torch = pytest.importorskip("torch")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "m.onnx"


@pytest.fixture
def large(monkeypatch):
    """Treats every model as one whose weights are beyond what a file holds."""
    monkeypatch.setattr("tracer.graph.stored_weights._LARGE", 100)
    monkeypatch.setattr("tracer.exporters.writing._MOST_INSIDE", 100)


def test_weights_of_a_large_model_go_to_a_file_beside_it(target, large, monkeypatch):
    monkeypatch.setattr(
        "torch.onnx.ONNXProgram.model_proto", property(lambda program: pytest.fail("a copy"))
    )
    module = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Tanh())
    exported = export(module, target, input_shape=(2, 30))
    assert [path.name for path in sorted(target.parent.iterdir())] == ["m.onnx", "m.onnx.data"]
    assert (exported.batches, exported.max_abs_error < 1e-5) == ((2, 4), True)
    assert "m.onnx.data, which must stay beside the model" in exported.notes[-1]
    with pytest.raises(UsageError, match=r"in a file of their own, m\.onnx\.data"):
        exported.save(target.with_name("copy.onnx"))
    x = torch.randn(5, 30)
    (ours,) = ort.InferenceSession(target).run(None, {"input": x.numpy()})
    np.testing.assert_allclose(ours, module(x).detach(), atol=1e-5)
    assert not onnx.load(target, load_external_data=False).graph.initializer[0].raw_data


@pytest.mark.nightly
def test_a_large_model_with_other_values_names_the_first_node(target, large, monkeypatch):
    monkeypatch.setattr("tracer.exporters.torch.conversion.run", lambda module, arrays: [arrays[0]])
    with pytest.raises(ThresholdError, match=r"differs from torch: .* all \d+ tensors"):
        export(torch.nn.Linear(30, 30), target, input_shape=(2, 30))
    assert not list(target.parent.iterdir())


def test_a_large_model_of_chainer_goes_to_two_files_as_well(target, large):
    chainer_ready()
    link = pytest.importorskip("chainer").links.Linear(30, 40)
    export(link, target, input_shape=(2, 30))
    assert [path.name for path in sorted(target.parent.iterdir())] == ["m.onnx", "m.onnx.data"]
    x = np.ones((3, 30), np.float32)
    session = ort.InferenceSession(target)
    (ours,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(ours, link(x).array, atol=1e-5)


@pytest.mark.nightly
def test_a_large_model_named_by_its_code_is_cached_with_its_weights(large, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = tmp_path / "net.py"
    code.write_text(
        "import torch\n"
        "class Net(torch.nn.Linear):\n"
        "    input_shape = (30,)\n"
        "    def __init__(self): super().__init__(30, 40)\n"
    )
    first = pipeline.cached_export(Code(f"{code}:Net"))
    monkeypatch.setattr("tracer.exporters.pipeline.convert", lambda *_: pytest.fail("not cached"))
    again = pipeline.cached_export(Code(f"{code}:Net"))
    assert first.sha256 == again.sha256
    feeds = {"input": np.ones((1, 30), np.float32)}
    theirs = ort.InferenceSession(first.path).run(None, feeds)
    np.testing.assert_allclose(Interpreter(again).run(None, feeds), theirs, atol=1e-5)


def test_a_large_model_without_a_cache_is_kept_while_the_program_runs(large, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Linear):\n"
        "    def __init__(self): super().__init__(30, 40)\n"
    )
    model = pipeline.cached_export(Code(f"{tmp_path / 'net.py'}:Net", [(1, 30)]))
    assert Interpreter(model).run(None, {"input": np.ones((1, 30), np.float32)})[0].any()
