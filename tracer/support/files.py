"""Checks that a file can be written, writes it atomically, and makes temporary folders."""

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

from tracer.errors import InputError
from tracer.support.file_lock import refuse_in_use

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX = ".tracer-"
_FOLDER = re.compile("tracer-[0-9]+-[0-9a-f]{16}")
"""Names of temporary folders: the process, and a random number."""
_UNLOCKED_S = 60.0


def check_writable(path: Path, force: bool) -> None:
    """Raises InputError if `path` exists (unless `force`) or its folder is not writable.

    Only a regular file is replaced, never a device, a pipe, a folder or a file that a running
    command writes; links are followed.
    """
    check_place(path)
    if path.exists() and not force:
        raise InputError(f"{path}: the file exists", "Choose another name, or give --force.")
    refuse_in_use(path)


def check_place(path: Path) -> None:
    """Raises InputError if `path` is no regular file, or its folder is not writable."""
    with _errors_naming(path):
        target = path.resolve()
        kind = target.stat().st_mode if target.exists() else None
        if kind is not None and stat.S_ISDIR(kind):
            raise InputError(f"{path}: is a folder", "Name a file.")
        if kind is not None and not stat.S_ISREG(kind):
            raise InputError(
                f"{path}: is a device or a pipe, not a file",
                "Name a file; -o - writes to standard output.",
            )
        if not target.parent.is_dir():
            raise InputError(f"{path}: the folder {target.parent} does not exist", "Make it first.")
    try:  # permissions do not suffice: file systems are read-only, full, or virtual
        with tempfile.TemporaryFile(dir=target.parent):
            return
    except OSError as error:
        raise InputError(
            f"{path}: the folder cannot be written to ({error.strerror or error})"
        ) from error


_MOST_BYTES = 1 << 30
"""A small file (options, a certificate, one tensor) is no larger, unless something is wrong."""


def read_regular(path: Path) -> bytes:
    """Returns the content of a file of up to 1 GiB.

    Raises InputError for a file that is absent, larger, or a device or pipe, which may never end.
    """
    try:
        # without a writer, a pipe would not even open
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{path}: not a regular file", "Name a file.")
            if status.st_size > _MOST_BYTES:
                raise InputError(f"{path}: {status.st_size:,} bytes", "At most 1 GiB is read.")
            return stream.read(_MOST_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path`, or to the target of a link, completely or not at all.

    The data are on the disk on return. Raises InputError if the disk is full or the folder gone, or
    if a running command writes to the same file.
    """
    refuse_in_use(path)
    with _errors_naming(path):
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
    """Writes out the folder, without which a power failure loses the file's new name."""
    # Not every file system supports it, and the folder may be unreadable; the file exists.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _errors_naming(path: Path) -> Iterator[None]:
    """Turns errors of the system into an InputError that names the file."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: circular links
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be written ({reason})") from error


class TemporaryFolder:
    """A private folder, removed after a `with`, with this object, or when the program ends.

    A program that is killed leaves it. Its name begins with the process, and the process holds a
    lock on it, which the system releases: `sweep` removes what nobody holds.
    """

    def __init__(self) -> None:
        name = f"tracer-{os.getpid()}-{os.urandom(8).hex()}"
        self.path = Path(tempfile.gettempdir(), name)
        # Registered before the folder exists: SIGTERM may raise between any two lines.
        self._remove = weakref.finalize(self, _remove, self.path, lock := list[int]())
        self.path.mkdir(mode=0o700)
        with contextlib.suppress(OSError):  # not every file system has locks
            lock.extend(_locked(self.path))

    def __enter__(self) -> Path:
        """Returns the path."""
        return self.path

    def __exit__(self, *error: object) -> None:
        """Removes the folder and its files."""
        self._remove()


def sweep() -> None:
    """Removes the temporary folders of this user's processes that died without removing them.

    A folder younger than a minute may not be locked yet.
    """
    if fcntl is None:
        return
    oldest = time.time() - _UNLOCKED_S
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if _FOLDER.fullmatch(entry.name) is None:
                continue
            with contextlib.suppress(OSError):  # its owner lives, or removed it just now
                kind = entry.stat(follow_symlinks=False)
                if kind.st_uid == os.getuid() and kind.st_mtime < oldest:
                    _remove(Path(entry.path), _locked(Path(entry.path)))


def sweep_of(process: int) -> None:
    """Removes the temporary folders of a process of ours that has ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"tracer-{process}-*"):
        if _FOLDER.fullmatch(folder.name):
            _remove(folder, [])


def _locked(folder: Path) -> list[int]:
    """Returns a descriptor that locks `folder`. Raises OSError where another process holds it."""
    if fcntl is None:
        return []
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return [descriptor]


def _remove(folder: Path, lock: Sequence[int]) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:  # a signal: the rest goes before the program ends
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        for descriptor in lock:
            os.close(descriptor)


def _umask() -> int:
    """Returns the umask: mkstemp creates private files, but results have usual permissions."""
    current = os.umask(0)
    os.umask(current)
    return current
