"""Marks a file as in use for the time of a run, so that another process does not replace it.

The system drops the mark when the process ends, however it ends. Systems without `flock`, and some
network file systems, have no such marks: there nothing is refused.
"""

import os
from pathlib import Path

from tracer.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]


class InUseError(InputError):
    """Another process is using the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: in use by another process", "Wait until it ends, or choose another name."
        )


class FileInUse:
    """A mark on the file at `path`, which must exist; several processes may mark one file."""

    def __init__(self, path: Path) -> None:
        while True:
            self._descriptor = os.open(path, os.O_RDONLY)
            _lock(self._descriptor, exclusive=False)
            if _is_at(self._descriptor, path):
                return
            self.release()  # another process replaced the file in between

    def release(self) -> None:
        """Removes the mark."""
        os.close(self._descriptor)


def refuse_in_use(path: Path) -> None:
    """Raises InputError for a file that a process has marked; no file is fine."""
    try:
        if not path.is_file():
            return
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # what cannot be opened is another check's to tell
        return
    try:
        is_free = _lock(descriptor, exclusive=True)
    finally:
        os.close(descriptor)
    if not is_free:
        raise InUseError(path)


def _lock(descriptor: int, exclusive: bool) -> bool:
    """Returns False where another mark is in the way, which only an exclusive lock can meet."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except BlockingIOError:
        return False
    except OSError:  # a file system without marks
        return True
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
