"""Makes temporary files and folders that the next command removes if this one is killed.

Each is marked as in use by its process, so that no other process replaces or removes it. The system
drops the mark of a process that ends, however it ends; `sweep` removes what has no mark. Systems
without `flock`, and some network file systems, have no such marks: there nothing is refused, and
nothing swept.

Standard input is such a file as well: it can be read once, and a second run after a crash reads it
again.
"""

import contextlib
import errno
import os
import re
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO, Self

from tracer.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MOMENT_S = 0.2
"""Seconds to wait for a mark to go: a file just written has one until its writer goes on."""
_NAME = re.compile(r"\.?tracer-[0-9]+-[0-9a-f]{16}")
"""Names of folders, and of files with a dot: the process, and a random number."""
_PROBE_BYTES = 1 << 16
"""Bytes that are written to learn whether a disk is full."""
STANDARD_INPUT = "-"
"""What users call standard input."""
_STANDARD_INPUT_FILE = "stdin.onnx"
_CHUNK = 1 << 20
_MOST_STREAMED = 1 << 31
"""Bytes of the largest model that is one stream: protobuf holds no more."""


def is_temporary(path: Path) -> bool:
    """Returns whether a path is in a folder of `TemporaryFolder`, and tells a user nothing."""
    return _NAME.fullmatch(path.parent.name) is not None


class TemporaryFolder:
    """A private folder, removed after a `with`, with this object, or when the program ends.

    It is in `within`, hidden, or in the folder for temporary files. Raises InputError where that
    cannot be written.
    """

    def __init__(self, within: Path | None = None) -> None:
        with naming_folder(within) as folder:
            self.path = folder / f"{'' if within is None else '.'}{_new_name()}"
            # Registered before the folder exists: SIGTERM may raise between any two lines.
            self._remove = weakref.finalize(self, _remove, self.path, marks := list[FileInUse]())
            marks.append(FileInUse.creating(self.path, lambda: self.path.mkdir(mode=0o700)))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self._remove()


@contextlib.contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """Makes an empty file in `folder`; it is removed after the `with` unless it has another name.

    Its permissions are those of any new file. Raises OSError where it cannot be made.
    """
    path = folder / f".{_new_name()}"
    marks: list[FileInUse] = []
    try:
        marks.append(FileInUse.creating(path, lambda: path.touch(exist_ok=False)))
        yield path
    finally:
        path.unlink(missing_ok=True)
        for mark in marks:
            mark.release()


def sweep(folder: Path | None = None) -> None:
    """Removes the files and folders that processes of this user left in `folder` when they died.

    The default is the folder for temporary files.
    """
    with contextlib.suppress(OSError), os.scandir(folder or tempfile.gettempdir()) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) is None:
                continue
            with contextlib.suppress(OSError), unmarked(Path(entry.path)):
                if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)  # noqa: PTH108 - as scandir gives it


def unnamed_file() -> BufferedRandom:
    """Returns a file for bytes, which goes when it is closed or the process ends."""
    with naming_folder() as folder:
        return tempfile.TemporaryFile(dir=folder)


def check_room() -> None:
    """Raises InputError if the disk of temporary files is full.

    Call it where a library failed that writes such files: it may blame the model.
    """
    with naming_folder() as folder, tempfile.TemporaryFile(dir=folder) as stream:
        stream.write(os.urandom(_PROBE_BYTES))
        stream.flush()


@contextlib.contextmanager
def naming_folder(within: Path | None = None) -> Iterator[Path]:
    """Gives `within`, or the folder for temporary files; an InputError names it for an OSError."""
    try:
        folder = within or Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise InputError(
            "no folder for temporary files can be written", "Set TMPDIR to one that can."
        ) from error
    try:
        yield folder
    except OSError as error:
        raise InputError(
            f"{folder}: temporary files cannot be written ({error.strerror or error})",
            "Make room there, or set TMPDIR to another folder.",
        ) from error


def _new_name() -> str:
    return f"tracer-{os.getpid()}-{os.urandom(8).hex()}"


class InUseError(InputError):
    """Another process is using the file."""

    @classmethod
    def of(cls, path: Path) -> "InUseError":
        """Returns the error for the file at `path`."""
        hint = "Wait until it ends, or choose another name."
        return cls(f"{path}: in use by another process", hint)


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


def _remove(folder: Path, marks: Sequence[FileInUse]) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:  # a signal: the rest goes before the program ends
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        for mark in marks:
            mark.release()


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
                raise InUseError.of(path) from error
        except OSError:  # what cannot be opened is another check's to tell
            return
        time.sleep(0.01)


_kept: BinaryIO | None = None
_folders: list[TemporaryFolder] = []
"""The folders of files that were spooled: they go when the program ends."""


def keep_standard_input() -> None:
    """Makes room for what this process, and others that are forked from it, read."""
    global _kept
    _kept = unnamed_file()


def spool_standard_input() -> Path:
    """Returns a file with all of standard input. Raises InputError for a terminal, or too much."""
    if _kept is None:
        keep_standard_input()
    assert _kept is not None
    if os.fstat(_kept.fileno()).st_size == 0:
        _copy(sys.stdin.buffer, _kept)
        _kept.flush()
    _kept.seek(0)
    folder = TemporaryFolder()
    _folders.append(folder)
    path = folder.path / _STANDARD_INPUT_FILE
    with path.open("wb") as file:
        _copy(_kept, file)
    return path


def without_folders(text: str) -> str:
    """Returns a message with the files of standard input called stdin.onnx, without a folder."""
    for folder in _folders:
        text = text.replace(str(folder.path / _STANDARD_INPUT_FILE), _STANDARD_INPUT_FILE)
    return text


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    if source.isatty():
        raise InputError("-: standard input is a terminal", "Pipe a model: … | tracer count -")
    copied = 0
    while chunk := source.read(_CHUNK):
        target.write(chunk)
        copied += len(chunk)
        if copied > _MOST_STREAMED:
            raise InputError("-: more than 2 GB, which no model in one stream has", "Name a file.")
