"""Writes a model, with its weights in the file or in a file beside it, atomically."""

import hashlib
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError

from tracer.containment import signals
from tracer.errors import UsageError
from tracer.graph import stored_weights
from tracer.graph.loading import sha256
from tracer.graph.model import encoded
from tracer.support import files

_MOST_INSIDE = 3 << 29
"""Bytes of weights in the file of a model: protobuf ends at 2 GiB, and nodes need room as well."""

_MOST_REPLACED = 9
"""Names of data that are looked at when a model is replaced."""


def check_target(path: Path, force: bool) -> None:
    """Raises UsageError for a name without .onnx, InputError if `path` cannot be written."""
    if path.suffix != ".onnx":
        raise UsageError(f"{path}: not the name of a model", "Give one that ends in .onnx.")
    files.check_writable(path, force)


def write(
    proto: onnx.ModelProto, path: Path, folder: Path | None = None, force: bool = True
) -> onnx.ModelProto:
    """Writes `proto`, with external data from `folder`, to `path`; returns it as it is there.

    Weights of more than 1.5 GiB go to a file of data beside it. The data of a model that is
    replaced are removed, unless another model in the folder refers to them. Raises LimitError where
    protobuf cannot hold the rest, or no memory is left, InputError where nothing can be written or,
    unless `force`, a file is there by then.
    """
    before = _data_of(path)
    if stored_weights.weight_bytes(proto) <= _MOST_INSIDE:
        written = stored_weights.with_inline_weights(proto, folder)
        files.write_atomically(path, encoded(written, str(path), sorted_maps=True), force)
    else:
        written = onnx.ModelProto()
        written.CopyFrom(proto)
        moved: list[onnx.TensorProto] = []

        def write_data(stream: BinaryIO) -> None:
            moved.extend(stored_weights.move_weights(written, folder, stream))

        def content(name: str) -> bytes:
            stored_weights.name_file(moved, name)
            return encoded(written, str(path), sorted_maps=True)

        files.write_with_data(path, write_data, content, force)
    for data in before:
        data.unlink(missing_ok=True)
    return written


def write_last(
    proto: onnx.ModelProto, path: Path, folder: Path | None, force: bool
) -> onnx.ModelProto:
    """Writes as `write`, as the last step of a call, which its time limit no longer ends."""
    signals.lift_limit()
    return write(proto, path, folder, force)


def write_beside(
    proto: onnx.ModelProto, path: Path, companion: Path, content: Callable[[str], bytes | None],
    force: bool = True,
) -> onnx.ModelProto:  # fmt: skip
    """Writes `proto` as `write`, and beside it what `content` returns for the SHA-256 of the file.

    Both are written completely or neither is; but where the weights need a file of data, the
    companion follows when the model is there. Without content, the model is written alone.
    """
    if stored_weights.weight_bytes(proto) > _MOST_INSIDE:
        written = write(proto, path, force=force)
        beside = content(sha256(path))
        if beside is not None:
            files.write_atomically(companion, beside, force)
        return written
    before, data = _data_of(path), encoded(proto, str(path), sorted_maps=True)
    beside = content(hashlib.sha256(data).hexdigest())
    if beside is None:
        files.write_atomically(path, data, force)
    else:
        files.write_with_companion(path, data, companion, beside, force)
    for old in before:
        old.unlink(missing_ok=True)
    return proto


def notes(written: onnx.ModelProto) -> tuple[str, ...]:
    """Returns a note for each file of data that a model needs beside it."""
    return tuple(
        f"the weights are in {name}, which must stay beside the model"
        for name in sorted(stored_weights.locations(written))
    )


def _data_of(path: Path) -> list[Path]:
    """Returns the files of data that `write` has written for the model at `path` alone."""
    own = [name for name, _ in zip(files.data_names(path), range(_MOST_REPLACED), strict=False)]
    paths = [path.resolve().with_name(name) for name in own]
    present = [file for file in paths if file.is_file()]
    try:
        if not present or not path.is_file():
            return []
        referred = stored_weights.locations(onnx.load(path, load_external_data=False))
    except DecodeError:  # no model: then it has no data
        return []
    others = [file for file in path.resolve().parent.glob("*.onnx") if file != path.resolve()]
    return [
        file
        for file in present
        if file.name in referred and not any(_refers(other, file.name) for other in others)
    ]


def _refers(model: Path, name: str) -> bool:
    """Returns whether a model may need the file of data `name`, in its folder."""
    try:
        if not model.is_file() or not model.stat().st_size:
            return False
        # it may be too large to parse it in vain
        with model.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
            if content.find(name.encode()) < 0:
                return False
        found = stored_weights.locations(onnx.load(model, load_external_data=False))
    except DecodeError:  # no model
        return False
    except OSError:  # it cannot be read: nobody knows
        return True
    return name in {Path(location).name for location in found}
