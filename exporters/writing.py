"""Writing the exported model: all of it or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.errors import LimitError
from tracer.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

_PROTOBUF_LIMIT = 2**31 - 1


def write(proto: onnx.ModelProto, path: Path) -> None:
    """Write `proto` to `path`. Raises LimitError for more than one protobuf file can hold."""
    if proto.ByteSize() > _PROTOBUF_LIMIT:
        raise LimitError(f"{path}: the model exceeds the 2 GB that one protobuf file can hold")
    write_atomically(path, proto.SerializeToString(deterministic=True))
