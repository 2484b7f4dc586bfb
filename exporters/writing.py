"""Writing the file: all of it or nothing, and never over another one unasked."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.errors import InputError, LimitError

if TYPE_CHECKING:
    import onnx

_PROTOBUF_LIMIT = 2**31 - 1


def check_target(path: Path, *, force: bool) -> None:
    """Raise InputError, before any work, where `path` exists or cannot be written."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder", "Name the .onnx file to write.")
    if path.exists() and not force:
        raise InputError(f"{path}: the file exists", "Choose another name, or give --force.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}", "Make the folder first.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: the folder {path.parent} cannot be written")


def write(proto: onnx.ModelProto, path: Path) -> None:
    """Write by way of a file beside it, so that a reader sees the old file or the whole new one."""
    if proto.ByteSize() > _PROTOBUF_LIMIT:
        raise LimitError(f"{path}: the model exceeds the 2 GB that one protobuf file can hold")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(proto.SerializeToString(deterministic=True))
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp makes it private; the model is not
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
