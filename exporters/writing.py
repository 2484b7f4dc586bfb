"""Write the exported model atomically."""

from pathlib import Path

import onnx

from tracer.errors import LimitError, UsageError
from tracer.support.files import check_writable, write_atomically

_PROTOBUF_LIMIT = 2**31 - 1


def check_target(path: Path, force: bool) -> None:
    """Raises UsageError for a name without .onnx, InputError if `path` cannot be written."""
    if path.suffix != ".onnx":
        raise UsageError(f"{path}: not the name of a model", "Give one that ends in .onnx.")
    check_writable(path, force)


def check_size(proto: onnx.ModelProto, path: Path) -> None:
    """Raises LimitError for more than one protobuf file can hold."""
    if proto.ByteSize() > _PROTOBUF_LIMIT:
        raise LimitError(f"{path}: the model exceeds the 2 GB that one protobuf file can hold")


def write(proto: onnx.ModelProto, path: Path) -> None:
    """Writes `proto` to `path`. Raises LimitError for more than one protobuf file can hold."""
    check_size(proto, path)
    write_atomically(path, proto.SerializeToString(deterministic=True))
