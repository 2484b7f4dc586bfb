"""No file tells where a model lay, unless it was asked to."""

import gzip
import io
import socket
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import tracer
from tests.graphs import residual
from tracer.analyzers import views
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.redaction import bare_text, without_paths
from tracer.errors import InputError
from tracer.records.trace import Trace

SECRET = "secret folder"
NODE = "/block/conv/Conv"


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A profile of a model, on inputs in a folder whose name has a space."""
    folder = tmp_path_factory.mktemp("home") / SECRET
    folder.mkdir()
    proto = residual()
    proto.graph.node[0].name = NODE
    for node in proto.graph.node:
        node.metadata_props.add(key="io.github.tracer-onnx.source", value=f"{folder}/net.py:1")
    onnx.save(proto, folder / "m.onnx")
    np.savez(folder / "x.npz", x=np.zeros((1, 3, 16, 16), np.float32))
    return tracer.profile(folder / "m.onnx", inputs=folder / "x.npz", runs=3)


def unpacked(content):
    """All that is in a file, also where it is compressed."""
    if content.startswith(b"\x1f\x8b"):
        return gzip.decompress(content)
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return b"".join(map(archive.read, archive.namelist()))
    return content


LEFT = ("annotated.onnx", "html", "sums.png", "sums.svg", "headroom.model-explorer.json")
"""The model itself, a report, which has a test of its own, and views of narrow sums."""
FORMATS = [each for each in views.formats(Trace) if each not in LEFT]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("extension", FORMATS)
def test_no_redacted_file_tells_a_path(extension, trace):
    options = ViewOptions(redact=True, with_paths=False)
    content = unpacked(views.render(trace, extension, options))
    assert SECRET.encode() not in content and b"secret" not in content


@pytest.mark.parametrize("extension", ["json", "trace", "csv"])
def test_a_redacted_file_keeps_names_of_nodes_and_files(extension, trace):
    content = views.render(trace, extension, ViewOptions(redact=True))
    assert NODE.encode() in content and b"net.py:1" in content


@pytest.mark.parametrize("extension", ["json", "trace"])
def test_a_trace_and_json_have_the_name_and_the_hash_alone(extension, trace):
    plain = views.render(trace, extension)
    assert b"secret" not in plain
    assert b"m.onnx" in plain and trace.model.sha256.encode() in plain and NODE.encode() in plain
    kept = views.render(trace, extension, ViewOptions(with_paths=True))
    assert SECRET.encode() in kept


def test_a_saved_trace_still_finds_the_model_where_it_is_written(trace, tmp_path, monkeypatch):
    saved = tracer.load(trace.save(tmp_path / "t.trace"))
    assert saved.model.path is None
    with pytest.raises(InputError, match="does not say where"):
        saved.save(tmp_path / "m.annotated.onnx")
    (tmp_path / "m.onnx").write_bytes(Path(trace.model.path).read_bytes())
    assert saved.save(tmp_path / "m.annotated.onnx").exists()


@pytest.mark.parametrize(
    ("text", "bare", "redacted"),
    [
        ("inputs are those of /home/jo/x.npz", "inputs are those of x.npz",
         "inputs are those of x.npz"),
        ("peaks: 142 GFLOP/s, 32.3 GB/s", "peaks: 142 GFLOP/s, 32.3 GB/s",
         "peaks: 142 GFLOP/s, 32.3 GB/s"),
        ("calibrated on data/x.npz", "calibrated on data/x.npz", "calibrated on x.npz"),
        (r"of C:\Users\jo\m.onnx", "of m.onnx", "of m.onnx"),
    ],
)  # fmt: skip
def test_texts(text, bare, redacted):
    assert (bare_text(text), without_paths(text)) == (bare, redacted)
    assert without_paths(f"on {socket.gethostname()}") == "on host"
