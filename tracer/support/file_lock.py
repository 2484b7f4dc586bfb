"""Marks a file or folder as in use for a time, so that no other process replaces or removes it.

The system drops the mark when the process ends, however it ends. Systems without `flock`, and some
network file systems, have no such marks: there nothing is refused, and nothing swept.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from tracer.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MOMENT_S = 0.2
"""Seconds to wait for a mark to go: a file just written has one until its writer goes on."""


class InUseError(InputError):
    """Another process is using the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: in use by another process", "Wait until it ends, or choose another name."
        )


class FileInUse:
    """A mark on what is at `path`, which several processes may mark.

    Raises FileNotFoundError where nothing is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptors: list[int] = []
        while fcntl is not None:
            self._descriptors.append(os.open(path, os.O_RDONLY))
            with contextlib.suppress(OSError):  # a file system without marks
                fcntl.flock(self._descriptors[0], fcntl.LOCK_SH)
            if self.is_at_path:
                return
            self.release()  # another process replaced the file in between

    @classmethod
    def creating(cls, path: Path, create: Callable[[], object]) -> Self:
        """Marks what `create` makes at `path`."""
        while True:
            create()
            with contextlib.suppress(FileNotFoundError):  # a sweep came before the mark
                return cls(path)

    @property
    def is_at_path(self) -> bool:
        """Whether what is at the path now is what was marked."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        return all(os.path.samestat(os.fstat(each), now) for each in self._descriptors)

    def release(self) -> None:
        """Removes the mark."""
        while self._descriptors:
            os.close(self._descriptors.pop())


@contextlib.contextmanager
def unmarked(path: Path) -> Iterator[None]:
    """Keeps marks off what is at `path` within this context.

    Raises BlockingIOError where it has a mark, and another OSError where there are no marks.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def refuse_in_use(path: Path) -> None:
    """Raises InputError for a file that a process has marked; no file is fine."""
    end = time.monotonic() + _MOMENT_S
    while path.is_file():
        try:
            with unmarked(path):
                return
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise InUseError(path) from error
        except OSError:  # what cannot be opened is another check's to tell
            return
        time.sleep(0.01)
