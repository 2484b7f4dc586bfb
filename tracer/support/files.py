"""Writing files: refused before the work begins, and then whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tracer.errors import InputError

_PREFIX = ".tracer-"


def check_writable(path: Path, force: bool) -> None:
    """Raise InputError if `path` exists (unless `force`) or its folder takes no new file.

    Only a regular file is replaced, never a device, a pipe or a folder; a link stands for what it
    points to.
    """
    with _told(path):
        target = path.resolve()
        kind = target.stat().st_mode if target.exists() else None
        if kind is not None and stat.S_ISDIR(kind):
            raise InputError(f"{path}: is a folder", "Name a file.")
        if kind is not None and not stat.S_ISREG(kind):
            raise InputError(
                f"{path}: is a device or a pipe, not a file",
                "Name a file; -o - writes to standard output.",
            )
        if kind is not None and not force:
            raise InputError(f"{path}: the file exists", "Choose another name, or give --force.")
        if not target.parent.is_dir():
            raise InputError(f"{path}: the folder {target.parent} does not exist", "Make it first.")
    try:  # permissions do not tell everything: file systems are read-only, full, or virtual
        with tempfile.TemporaryFile(dir=target.parent):
            return
    except OSError as error:
        raise InputError(
            f"{path}: the folder cannot be written to ({error.strerror or error})"
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path`, or what it links to, holds all of it or what it held before.

    It is on the disk when this returns. Raises InputError where the disk is full or the folder is
    gone.
    """
    with _told(path):
        target = path.resolve()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=_PREFIX)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """A file's new name is lost with the power unless its folder is written out too."""
    # Not every file system can, nor need the folder be readable; the file itself is there.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system refuses, as an InputError that names the file."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be written ({reason})") from error


def _umask() -> int:
    """mkstemp makes files private; a result is as readable as any file of the user's."""
    current = os.umask(0)
    os.umask(current)
    return current
