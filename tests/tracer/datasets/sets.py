"""Small models and data sets in files for them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.graphs import parse
from tracer.graph import loading


def model(inputs="float[N,3] x", outputs="float[N,3] y", body="y = Relu (x)"):
    text = f'<ir_version: 9, opset_import: ["": 18]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return loading.from_proto(parse(text))


def images(batch="N", shape="3,32,32", dtype="float"):
    return model(
        f"{dtype}[{batch},{shape}] x", f"{dtype}[{batch},{shape}] out", "out = Identity (x)"
    )


def table(tmp_path: Path, save=np.savez, **arrays) -> Path:
    path = tmp_path / "set.npz"
    save(path, **arrays)
    return path


def whole(batches):
    batches = list(batches)
    labels = [b.labels for b in batches if b.labels is not None]
    return (
        np.concatenate([b.inputs["x"][: b.size] for b in batches]),
        np.concatenate(labels) if labels else None,
    )


def write_test_data(folder: Path, x: np.ndarray, out: np.ndarray | None = None) -> None:
    folder.mkdir(parents=True)
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    if out is not None:
        (folder / "output_0.pb").write_bytes(numpy_helper.from_array(out).SerializeToString())


def encoded(number: int, size=(8, 8), mode="RGB", kind="PNG") -> bytes:
    """A picture that differs from those of other numbers."""
    image = pytest.importorskip("PIL.Image")
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    pixels = np.random.default_rng(number).integers(0, 256, shape, np.uint8)
    stream = io.BytesIO()
    image.fromarray(pixels, mode).save(stream, kind)
    return stream.getvalue()


def write_image(path: Path, number: int, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(number, **options))


def write_tar(path: Path, samples: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Writes samples by key and field: bytes, arrays as .npy, dicts as .json, numbers as text."""
    with tarfile.open(path, "w") as tar:
        for key, fields in samples:
            for name, value in fields.items():
                data = _bytes(name, value)
                info = tarfile.TarInfo(f"{key}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def _bytes(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if name.endswith("npy"):
        stream = io.BytesIO()
        np.save(stream, value)
        return stream.getvalue()
    return (json.dumps(value) if name.endswith("json") else str(value)).encode()
