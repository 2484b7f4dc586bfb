"""Weights that a model stores: in the graph, in files beside it, as inputs with a default.

How much memory a model may take by default is in proportion to its weights and inputs.
"""

import filecmp
import hashlib
import mmap
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import external_data_helper
from onnx.numpy_helper import to_array

from tracer.containment import memory
from tracer.errors import InputError, UsageError
from tracer.graph import tensor_type
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, graphs, node_protos
from tracer.support.types import Array

_LEAST_MAPPED = 1 << 16
"""Bytes from which a tensor is mapped: a process has some 65,000 mappings at most."""
_LEAST = 1 << 10
"""Bytes of a weight that is moved; shapes and axes stay in the graph, where tools read them."""
_ALIGNED = 1 << 12
"""Weights begin at multiples of it, so that pages of the file can be mapped."""
_NAME = "weights.data"
"""The file of the weights of a model that has no file of its own."""
_AT_ONCE = 1 << 24
"""Bytes that are copied at a time from another file."""
_VALUES, _RUNTIME = 512 << 20, 640 << 20
"""Bytes for the values of any model in the interpreter, and for a runtime with its sessions."""
_PROPORTION = 512
"""Further bytes for each byte of weights and inputs. A convolution makes 64 channels of a grey
image, several are alive at a time, and in several sessions. What makes more of what it is given
was made to fill the memory."""
_LARGE = 1 << 30
"""Bytes of weights that are held once at a time, and not in protobufs, which end at 2 GB."""
_A_CORE = 64 << 20
"""Bytes for each processor: stacks of the threads of all sessions."""
_PART = 4
"""What is left of the memory ÷ what any model may take: some make their weights from nothing."""


def initializers(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yields the initializers of the graph and of every body inside it."""
    for graph in graphs(proto.graph):
        yield from graph.initializer


def stored_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yields all initializers, and the tensors in attributes of nodes, those of functions too."""
    yield from initializers(proto)
    owners: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    for owner in owners:
        for node in node_protos(owner):
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def has_external_data(proto: onnx.ModelProto) -> bool:
    """Returns whether data of any tensor lie in other files."""
    return any(map(external_data_helper.uses_external_data, stored_tensors(proto)))


def weight_bytes(proto: onnx.ModelProto) -> int:
    """Returns the bytes of all initializers, wherever they are stored; 0 for each of strings."""
    tensors = initializers(proto)
    return sum(tensor_type.from_initializer(tensor).nbytes or 0 for tensor in tensors)


def probe_external(tensor: onnx.TensorProto, folder: Path) -> None:
    """Reads the last byte of a tensor's external data, by onnx's rules for their location.

    Raises what onnx raises: for a link, a place outside `folder`, a file that is too short.
    """
    entries = _entries(tensor)
    last = int(entries.get("offset", 0)) + max(int(entries.get("length", 1)), 1) - 1
    byte = onnx.TensorProto(name=tensor.name, data_type=onnx.TensorProto.UINT8, dims=[1])
    byte.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", entries.get("location", "")), ("offset", last), ("length", 1)):
        byte.external_data.add(key=key, value=str(value))
    external_data_helper.load_external_data_for_tensor(byte, str(folder))


def read_external(tensor: onnx.TensorProto, folder: Path) -> Array:
    """Returns a tensor whose data are in a file in `folder`; large ones are mapped, read-only.

    The system reads the pages of a mapped file when they are needed, drops them when memory is
    short, and keeps one copy for all who map it. Raises ValueError, OSError or onnx's
    ValidationError for data that cannot be read.
    """
    kind, entries = tensor_type.from_initializer(tensor), _entries(tensor)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", 0))
    is_plain = tensor_type.bits_of(kind.dtype) == dtype.itemsize * 8 and sys.byteorder == "little"
    is_aligned = offset >= 0 and offset % dtype.itemsize == 0
    if is_plain and is_aligned and length == kind.nbytes and length >= _LEAST_MAPPED:
        probe_external(tensor, folder)
        file = folder / entries["location"]
        assert kind.concrete is not None
        return np.asarray(np.memmap(file, dtype, "r", offset, kind.concrete))
    return to_array(deepcopy(tensor), base_dir=str(folder))


def unmap(array: Array) -> None:
    """Takes the mapped pages of an array of `read_external` out of this process, where it has any.

    They come back when the array is read; the system keeps them in its cache meanwhile.
    """
    mapped = mapping_of(array)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def mapping_of(array: Array) -> mmap.mmap | None:
    """Returns the mapped file that an array is in, or a part of; None where it is in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def with_inline_weights(proto: onnx.ModelProto, folder: Path | None) -> onnx.ModelProto:
    """Returns `proto`, or a copy with all of its external data, which are in `folder`."""
    if not any(map(external_data_helper.uses_external_data, initializers(proto))):
        return proto
    assert folder is not None
    copy = deepcopy(proto)
    external_data_helper.load_external_data_for_model(copy, str(folder))
    return copy


def with_weights_apart(proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Returns `proto`, whose weights are in memory, with external data in `folder`.

    `proto` loses its weights.
    """
    with (folder / _NAME).open("wb") as stream:
        name_file(move_weights(proto, folder, stream), _NAME)
    return deepcopy(proto)  # a protobuf does not free the memory of what is removed


def move_weights(
    proto: onnx.ModelProto, folder: Path | None, stream: BinaryIO
) -> list[onnx.TensorProto]:
    """Writes the weights of `proto`, whose external data are in `folder`, to `stream`.

    Returns the tensors that were written. They refer to a file without a name: see `name_file`.
    """
    moved = []
    for tensor in initializers(proto):
        is_external = external_data_helper.uses_external_data(tensor)
        nbytes = tensor_type.from_initializer(tensor).nbytes or 0
        if nbytes < _LEAST or not (is_external or tensor.HasField("raw_data")):
            if is_external:
                external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            continue
        stream.write(bytes(-stream.tell() % _ALIGNED))
        offset = stream.tell()
        if is_external:
            assert folder is not None
            entries = _entries(tensor)
            with (folder / entries["location"]).open("rb") as source:
                source.seek(int(entries.get("offset", 0)))
                left = int(entries.get("length", os.fstat(source.fileno()).st_size))
                while left:
                    data = source.read(min(left, _AT_ONCE))
                    if not data:
                        name = entries["location"]
                        raise ValueError(f"{name} ends within tensor '{tensor.name}'")
                    stream.write(data)
                    left -= len(data)
            tensor.raw_data = b""
        else:
            stream.write(tensor.raw_data)
        external_data_helper.set_external_data(tensor, "", offset, stream.tell() - offset)
        tensor.ClearField("raw_data")
        moved.append(tensor)
    return moved


def name_file(moved: list[onnx.TensorProto], location: str) -> None:
    """Has tensors that were moved refer to the file `location`, in the folder of their model."""
    for tensor in moved:
        entry = next(entry for entry in tensor.external_data if entry.key == "location")
        entry.value = location


def locations(proto: onnx.ModelProto) -> set[str]:
    """Returns the names of the files that the tensors refer to."""
    return {
        entry.value
        for tensor in filter(external_data_helper.uses_external_data, stored_tensors(proto))
        for entry in tensor.external_data
        if entry.key == "location"
    }


def refuse_apart(proto: onnx.ModelProto) -> None:
    """Raises UsageError for a model whose weights are in a file beside it."""
    for file in sorted(locations(proto)):
        raise UsageError(
            f"the weights of the model are in a file of their own, {file}",
            "Copy both files, or write the model to another output in the first place.",
        )


def are_same(first: Model, second: Model) -> bool:
    """Returns whether two models are the same bytes, those in files of weights included."""
    if first.sha256 != second.sha256:
        return False
    folders = [model.folder or Path() for model in (first, second)]
    files = ([folder / place for folder in folders] for place in locations(first.proto))
    return all(a.samefile(b) or filecmp.cmp(a, b, shallow=False) for a, b in files)


LISTED_WEIGHTS = "listed among the inputs: onnxruntime folds none of them, and may fuse less"
"""Marks the note on weights that a feed may replace."""


def overridable(model: Model) -> tuple[onnx.ValueInfoProto, ...]:
    """Returns the inputs that have a default, in the order of the graph."""
    if model.proto.ir_version < IR_WITH_UNLISTED_WEIGHTS:
        return ()
    weights = {weight.name for weight in model.graph.initializer}
    return tuple(value for value in model.graph.input if value.name in weights)


def with_fed_weights(model: Model, names: Collection[str]) -> Model:
    """Returns the model with these overridable weights as inputs, which must then be fed."""
    proto = deepcopy(model.proto)
    kept = [weight for weight in proto.graph.initializer if weight.name not in names]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    stand_in = model.stand_in
    if stand_in is not None:
        stand_in = replace(stand_in, model=with_fed_weights(stand_in.model, names))
    return replace(model, proto=proto, stand_in=stand_in)


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The SHA-256 of each file beside a model that has weights of it, by its place."""

    hashes: Mapping[str, str]

    @classmethod
    def of(cls, model: Model) -> "WeightFiles":
        """Returns the files of `model` as they are here. Raises InputError for a missing one."""
        if model.path is None:
            return cls({})
        hashes = {}
        for place in sorted(locations(model.proto)):
            file = model.path.parent / place
            try:
                status = file.stat()
                hashes[place] = _hash_of(file.resolve(), status.st_size, status.st_mtime_ns)
            except OSError as error:
                raise InputError(
                    f"{model.name}: its weights in {file} cannot be read ({error.strerror})",
                    "Copy the model together with its files of weights.",
                ) from error
        return cls(hashes)

    def check(self, model: Model) -> None:
        """Raises InputError where `model` has other weights here, or lacks some."""
        for place, other in WeightFiles.of(model).hashes.items():
            if self.hashes.get(place) != other:
                raise InputError(
                    f"{model.name}: the weights in {place} are not those of the process that "
                    "shares its work out",
                    "Copy the model together with its files of weights.",
                )


def findable(model: Model) -> Model:
    """Returns `model` with the whole path of its file, which a process in any folder finds."""
    if model.path is None:
        return model
    return replace(model, path=model.path.absolute(), subject=model.name)


@cache
def _hash_of(file: Path, size: int, modified_ns: int) -> str:
    """The hash of a file; it is read again when its size or its time has changed."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def memory_of_values(given: int) -> int:
    """Returns the bytes that values in the interpreter may take for so many `given_bytes`."""
    return _VALUES + _PROPORTION * given


def memory_of_runtime(given: int) -> int:
    """Returns the bytes that a runtime may take for so many `given_bytes`."""
    least = max(_RUNTIME + _A_CORE * (os.cpu_count() or 1), (memory.room_bytes() or 0) // _PART)
    return least + _PROPORTION * given


def given_bytes(model: Model, feeds: Iterable[object]) -> int:
    """Returns the bytes of a model, its weights wherever they are stored, and of its feeds."""
    fed = sum(int(getattr(value, "nbytes", 0)) for value in feeds)
    return model.proto.ByteSize() + stored_bytes(model) + fed


def is_large(model: Model) -> bool:
    """Returns whether the weights should be in memory once at a time: what holds them takes turns.

    A session of onnxruntime holds weights of its own, packed for its kernels.
    """
    return is_much(stored_bytes(model))


def is_much(nbytes: int) -> bool:
    """Returns whether so many bytes of weights should be in memory once at a time."""
    return nbytes >= _LARGE


def stored_bytes(model: Model) -> int:
    """Returns the bytes of all initializers, wherever they are stored; 0 for each of strings."""
    stored = (tensor for scope in model.scopes for tensor in scope.graph.initializer)
    return sum(tensor_type.from_initializer(tensor).nbytes or 0 for tensor in stored)
