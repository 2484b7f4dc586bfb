"""Reads feeds from an `.npz` file by input name, or from a `test_data_set_N` folder."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import uses_external_data

from tracer.errors import InputError, refusing
from tracer.graph.model import Model
from tracer.graph.shape_inference import symbol_sizes
from tracer.inputs import npz
from tracer.inputs.feedset import Feeds
from tracer.support.files import read_regular


def read(model: Model, path: Path) -> Feeds:
    """Returns arrays for the inputs of `model`.

    Raises InputError for a file of no use, LimitError for arrays beyond the limits.
    """
    if not path.exists():
        raise InputError(f"{path}: no such inputs", "Name an .npz file or a test_data_set folder.")
    if path.is_dir():
        return _read_folder(model, path)
    if path.suffix == ".npz":
        shapes = {name: member.shape for name, member in npz.members(path).items()}
        symbol_sizes(model, shapes)  # what does not fit is not unpacked
        return read_arrays(path)
    raise InputError(
        f"{path}: inputs are read from .npz files and test_data_set folders only",
        "Write one with numpy.savez(file, input_name=array).",
    )


def read_arrays(path: Path) -> Feeds:
    """Returns the arrays of an `.npz` file, in its order. Raises InputError for any other file."""
    archive = npz.members(path)
    with npz.opened(path, list(archive.values())) as streams:
        pairs = zip(archive.items(), streams, strict=True)
        return {name: member.whole(stream).copy() for (name, member), stream in pairs}


def test_data_sets(folder: Path) -> list[Path]:
    """Returns `folder` if it is a test_data_set, else the test_data_sets inside, by number."""
    return [folder] if any(folder.glob("input_*.pb")) else nested_test_data_sets(folder)


def nested_test_data_sets(folder: Path) -> list[Path]:
    """Returns the test_data_set folders inside `folder`, by number."""
    return sorted(folder.glob("test_data_set_*"), key=numeric_order)


def numeric_order(path: Path) -> tuple[tuple[int, str], ...]:
    """Sorts test_data_set_10 after test_data_set_9."""
    parts = re.split(r"([0-9]+)", path.name)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)


def _read_folder(model: Model, path: Path) -> Feeds:
    """Reads `input_K.pb` as the K-th input, from the first test_data_set in `path`."""
    sets = test_data_sets(path)
    if not sets:
        raise InputError(f"{path}: holds neither input_0.pb nor a test_data_set folder")
    feeds = {}
    for index, value in enumerate(model.inputs):
        file = sets[0] / f"input_{index}.pb"
        if file.exists():
            feeds[value.name] = _read_proto(file, value)
    return feeds


def read_outputs(model: Model, path: Path) -> Feeds:
    """Returns the expected outputs that a test_data_set folder holds, by the model's names.

    Raises InputError for a file that does not hold a value of the output's type.
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
    content = read_regular(file)
    role = f"{file.name.partition('_')[0]} '{value.name}'"
    with refusing(lambda why: InputError(f"{file}: does not hold {role} ({why})")):
        return reader(_inside(proto_type.FromString(content)))


def _inside(proto: Any) -> Any:
    """Returns a value. Raises ValueError if its data are in other files, which may be anywhere."""
    if any(uses_external_data(tensor) for tensor in _tensors(proto)):
        raise ValueError("its data are in another file, which is not read")
    return proto


def _tensors(proto: Any) -> Iterator[onnx.TensorProto]:
    """Yields the tensors of a tensor, sequence, map or optional."""
    if isinstance(proto, onnx.TensorProto):
        yield proto
        return
    for field, value in proto.ListFields():
        if field.message_type is not None:
            for each in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors(each)
