"""Feeds from a file: `.npz` by input name, or a `test_data_set_N` folder of protobufs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds


def read(model: Model, path: Path) -> Feeds:
    """Arrays for the inputs of `model`. Raises InputError where the file cannot be used."""
    if not path.exists():
        raise InputError(f"{path}: no such inputs", "Give an .npz file or a test_data_set folder.")
    if path.is_dir():
        return _read_folder(model, path)
    if path.suffix == ".npz":
        return _read_npz(path)
    raise InputError(
        f"{path}: inputs are read from .npz files and test_data_set folders only",
        "Write one with numpy.savez(file, input_name=array).",
    )


def _read_npz(path: Path) -> Feeds:
    with _archive(path) as archive:
        return {name: archive[name] for name in archive.files}


@contextmanager
def _archive(path: Path) -> Iterator[Any]:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: not an .npz file", "Write it with numpy.savez.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: not an .npz file of plain arrays ({error})", "Write it with numpy.savez."
        ) from error


def _read_folder(model: Model, path: Path) -> Feeds:
    """`input_K.pb` is the K-th input of the graph; folders of folders mean the first data set."""
    if not list(path.glob("input_*.pb")):
        sets = sorted(path.glob("test_data_set_*"))
        if not sets:
            raise InputError(f"{path}: holds neither input_0.pb nor a test_data_set folder")
        path = sets[0]
    feeds = {}
    for index, value in enumerate(model.inputs):
        file = path / f"input_{index}.pb"
        if file.exists():
            feeds[value.name] = _read_proto(file, value)
    return feeds


def read_outputs(model: Model, path: Path) -> Feeds:
    """The expected outputs in a test_data_set folder, by the model's names; those that are there.

    Raises InputError where a file does not hold what the model's output is.
    """
    files = {value.name: path / f"output_{i}.pb" for i, value in enumerate(model.graph.output)}
    declared = {value.name: value for value in model.graph.output}
    return {n: _read_proto(file, declared[n]) for n, file in files.items() if file.exists()}


def _read_proto(file: Path, value: onnx.ValueInfoProto) -> Any:
    readers: dict[str | None, tuple[Any, Callable[[Any], Any]]] = {
        "tensor_type": (onnx.TensorProto, onnx.numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, onnx.numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
    }
    kind = value.type.WhichOneof("value")
    if kind not in readers:
        raise InputError(f"{file}: an input of kind {kind} cannot be read from a file")
    proto_type, reader = readers[kind]
    try:
        return reader(proto_type.FromString(file.read_bytes()))
    except (DecodeError, ValueError, KeyError, TypeError) as error:
        what = f"{file.name.partition('_')[0]} '{value.name}'"
        raise InputError(f"{file}: does not hold {what} ({error})") from error
