"""Writing files: refused before the work begins, and then whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tracer.errors import InputError


def check_writable(path: Path, force: bool) -> None:
    """Raise InputError if `path` exists (unless `force`) or its folder takes no new file."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder", "Name a file.")
    if path.exists() and not force:
        raise InputError(f"{path}: the file exists", "Choose another name, or give --force.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist", "Make it first.")
    try:  # permissions do not tell everything: file systems are read-only, full, or virtual
        with tempfile.TemporaryFile(dir=path.parent):
            return
    except OSError as error:
        raise InputError(
            f"{path}: the folder cannot be written to ({error.strerror or error})"
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds all of it, or what it held before.

    Raises InputError where the disk is full or the folder is gone.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path}: cannot be written ({reason})") from error


def _umask() -> int:
    """mkstemp makes files private; a result is as readable as any file of the user's."""
    current = os.umask(0)
    os.umask(current)
    return current
