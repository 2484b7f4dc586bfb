"""Small models and data sets in files for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
