"""Models whose weights are in a file beside them: both are there, or none."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from tracer.errors import InputError
from tracer.exporters import writing
from tracer.graph import loading, stored_weights


def model(seed=0, size=64):
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[1,{size}] x) => (float[1,{size}] y) {{ s = MatMul (x, w)  t = Add (s, b)
      y = Reshape (t, shape) }}"""
    proto = onnx.parser.parse_model(text)
    random = np.random.default_rng(seed)
    arrays = {"w": random.standard_normal((size, size)).astype("f4"), "b": np.ones(size, "f4"),
              "shape": np.array([1, size])}  # fmt: skip
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return proto


def run(path):
    return ort.InferenceSession(path).run(None, {"x": np.ones((1, 64), "f4")})[0]


def expected(seed=0):
    session = ort.InferenceSession(model(seed).SerializeToString())
    return session.run(None, {"x": np.ones((1, 64), "f4")})[0]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def small_files(monkeypatch):
    monkeypatch.setattr(writing, "_MOST_INSIDE", 100)


def test_weights_beyond_the_size_of_a_file_are_beside_the_model(small_files, tmp_path):
    written = writing.write(model(), tmp_path / "m.onnx", tmp_path)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert written == onnx.load(tmp_path / "m.onnx", load_external_data=False)
    inside = [weight.name for weight in written.graph.initializer if not weight.external_data]
    assert inside == ["b", "shape"]  # tools read shapes there
    np.testing.assert_array_equal(run(tmp_path / "m.onnx"), expected())


def test_weights_of_another_file_are_copied(small_files, tmp_path):
    (tmp_path / "old").mkdir()
    source = tmp_path / "old" / "m.onnx"
    onnx.save(model(), source, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = onnx.load(source, load_external_data=False)
    writing.write(before, tmp_path / "m.onnx", source.parent)
    assert before == onnx.load(source, load_external_data=False)
    source.with_name("w.bin").unlink()
    np.testing.assert_array_equal(run(tmp_path / "m.onnx"), expected())
    assert loading.load(tmp_path / "m.onnx").graph.node


def test_external_data_come_into_a_model_that_is_small(tmp_path):
    source = tmp_path / "m.onnx"
    onnx.save(model(), source, save_as_external_data=True, location="w.bin", size_threshold=0)
    proto = onnx.load(source, load_external_data=False)
    writing.write(proto, tmp_path / "whole.onnx", tmp_path)
    (tmp_path / "w.bin").unlink()
    np.testing.assert_array_equal(run(tmp_path / "whole.onnx"), expected())


def test_a_model_that_is_replaced_takes_its_data_along(small_files, tmp_path, monkeypatch):
    for seed in (1, 2, 3):
        writing.write(model(seed), tmp_path / "m.onnx", tmp_path)
        assert len(names(tmp_path)) == 2
        np.testing.assert_array_equal(run(tmp_path / "m.onnx"), expected(seed))
    monkeypatch.undo()
    writing.write(model(4), tmp_path / "m.onnx", tmp_path)
    assert names(tmp_path) == ["m.onnx"]


def test_data_that_another_model_needs_stay_where_they_are(small_files, tmp_path):
    writing.write(model(1), tmp_path / "m.onnx", tmp_path)
    (tmp_path / "copy.onnx").write_bytes((tmp_path / "m.onnx").read_bytes())
    for other in ("xm.onnx", "empty.onnx", "text.onnx", "pipe.onnx"):  # these do not
        (tmp_path / other).touch()
    writing.write(model(5), tmp_path / "xm.onnx", tmp_path)
    (tmp_path / "text.onnx").write_text("see m.onnx.data")
    (tmp_path / "pipe.onnx").unlink()
    os.mkfifo(tmp_path / "pipe.onnx")
    for seed in (2, 3):
        writing.write(model(seed), tmp_path / "m.onnx", tmp_path)
        np.testing.assert_array_equal(run(tmp_path / "m.onnx"), expected(seed))
        np.testing.assert_array_equal(run(tmp_path / "copy.onnx"), expected(1))
    data = [name for name in names(tmp_path) if name.endswith(".data")]
    assert data == ["m.onnx.3.data", "m.onnx.data", "xm.onnx.data"]
    (tmp_path / "copy.onnx").unlink()
    writing.write(model(4), tmp_path / "m.onnx", tmp_path)
    np.testing.assert_array_equal(run(tmp_path / "m.onnx"), expected(4))


def test_data_of_other_models_are_left_alone(small_files, tmp_path):
    (tmp_path / "m.onnx.data").write_bytes(b"of another model")
    writing.write(model(), tmp_path / "m.onnx", tmp_path)
    writing.write(model(1), tmp_path / "m.onnx", tmp_path)
    assert len(names(tmp_path)) == 3
    assert (tmp_path / "m.onnx.data").read_bytes() == b"of another model"
    np.testing.assert_array_equal(run(tmp_path / "m.onnx"), expected(1))


@pytest.mark.parametrize("step", ["fsync", "link", "replace"])
def test_a_failure_leaves_the_model_before_with_its_data(step, small_files, tmp_path, monkeypatch):
    writing.write(model(1), tmp_path / "m.onnx", tmp_path)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    if step == "link":
        monkeypatch.setattr(os, "link", full)
    with pytest.raises(InputError, match="No space left on device"):
        writing.write(model(2), tmp_path / "m.onnx", tmp_path)
    monkeypatch.undo()
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    np.testing.assert_array_equal(run(tmp_path / "m.onnx"), expected(1))


def test_a_file_that_is_no_model_is_replaced(small_files, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"\xff no model")
    (tmp_path / "m.onnx.data").write_bytes(b"kept")
    writing.write(model(), tmp_path / "m.onnx", tmp_path)
    assert names(tmp_path) == ["m.onnx", "m.onnx.2.data", "m.onnx.data"]
    assert stored_weights.locations(onnx.load(tmp_path / "m.onnx", load_external_data=False)) == {
        "m.onnx.2.data"
    }
