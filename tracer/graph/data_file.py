"""Moves the weights of a protobuf to a file of their own, one at a time."""

from pathlib import Path
from typing import BinaryIO

import onnx
from onnx.external_data_helper import (
    load_external_data_for_model,
    load_external_data_for_tensor,
    set_external_data,
    uses_external_data,
)

from tracer.errors import UsageError
from tracer.graph import tensor_type
from tracer.graph.stored_tensors import initializers, stored_tensors

_LEAST = 1 << 10
"""Bytes of a weight that is moved; shapes and axes stay in the graph, where tools read them."""

_ALIGNED = 1 << 12
"""Weights begin at multiples of it, so that pages of the file can be mapped."""

_NAME = "weights.data"
"""The file of the weights of a model that has no file of its own."""

_AT_ONCE = 1 << 24
"""Bytes that are copied at a time from another file."""


def nbytes(proto: onnx.ModelProto) -> int:
    """Returns the bytes of all initializers, wherever they are stored; 0 for each of strings."""
    tensors = initializers(proto)
    return sum(tensor_type.from_initializer(tensor).nbytes or 0 for tensor in tensors)


def whole(proto: onnx.ModelProto, folder: Path | None) -> onnx.ModelProto:
    """Returns `proto`, or a copy with all of its external data, which are in `folder`."""
    if not any(map(uses_external_data, initializers(proto))):
        return proto
    assert folder is not None
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    load_external_data_for_model(copy, str(folder))
    return copy


def apart(proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Returns `proto`, whose weights are in memory, with external data in `folder`.

    `proto` loses its weights.
    """
    with (folder / _NAME).open("wb") as stream:
        name(move(proto, folder, stream), _NAME)
    light = onnx.ModelProto()  # a protobuf does not free the memory of what is removed
    light.CopyFrom(proto)
    return light


def move(proto: onnx.ModelProto, folder: Path | None, stream: BinaryIO) -> list[onnx.TensorProto]:
    """Writes the weights of `proto`, whose external data are in `folder`, to `stream`.

    Returns the tensors that were written. They refer to a file without a name: see `name`.
    """
    moved = []
    for tensor in initializers(proto):
        if _stored_bytes(tensor) < _LEAST:
            if uses_external_data(tensor):
                load_external_data_for_tensor(tensor, str(folder))
            continue
        stream.write(bytes(-stream.tell() % _ALIGNED))
        offset = stream.tell()
        if uses_external_data(tensor):
            assert folder is not None
            _copy(tensor, folder, stream)
            tensor.raw_data = b""
        else:
            stream.write(tensor.raw_data)
        set_external_data(tensor, "", offset, stream.tell() - offset)
        tensor.ClearField("raw_data")
        moved.append(tensor)
    return moved


def name(moved: list[onnx.TensorProto], location: str) -> None:
    """Has tensors that were moved refer to the file `location`, in the folder of their model."""
    for tensor in moved:
        entry = next(entry for entry in tensor.external_data if entry.key == "location")
        entry.value = location


def locations(proto: onnx.ModelProto) -> set[str]:
    """Returns the names of the files that the tensors refer to."""
    return {
        entry.value
        for tensor in filter(uses_external_data, stored_tensors(proto))
        for entry in tensor.external_data
        if entry.key == "location"
    }


def refuse_apart(proto: onnx.ModelProto) -> None:
    """Raises UsageError for a model whose weights are in a file beside it."""
    for name in sorted(locations(proto)):
        raise UsageError(
            f"the weights of the model are in a file of their own, {name}",
            "Copy both files, or write the model to another output in the first place.",
        )


def _stored_bytes(tensor: onnx.TensorProto) -> int:
    """Returns the bytes of data that are not in typed fields, by the type: reading them copies."""
    apart = uses_external_data(tensor) or tensor.HasField("raw_data")
    return tensor_type.from_initializer(tensor).nbytes or 0 if apart else 0


def _copy(tensor: onnx.TensorProto, folder: Path, stream: BinaryIO) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    with (folder / entries["location"]).open("rb") as source:
        source.seek(int(entries.get("offset", 0)))
        left = int(entries.get("length", (folder / entries["location"]).stat().st_size))
        while left:
            data = source.read(min(left, _AT_ONCE))
            if not data:
                raise ValueError(f"{entries['location']} ends within tensor '{tensor.name}'")
            stream.write(data)
            left -= len(data)
