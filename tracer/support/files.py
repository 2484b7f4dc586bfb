"""Checks that a file can be written, writes it atomically, and keeps measurements in a cache.

The cache is a folder of the user, with what was measured on this machine. Other files are installed
with tracer.
"""

import contextlib
import hashlib
import itertools
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from tracer.errors import InputError, TracerError
from tracer.support.temporary import refuse_in_use, sweep, temporary_file

_ENDING_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    *([signal.SIGALRM] if hasattr(signal, "SIGALRM") else []),  # the end of a time limit
)

_MOST_BYTES = 1 << 30
"""A small file (options, a certificate, one tensor) is no larger, unless something is wrong."""
_EXISTS = "the file exists", "Choose another name, or give --force."
_untold: dict[Path, None] = {}
"""Files that were written, and that nobody was told of yet."""
EXAMPLES = Path(__file__).parents[1] / "examples"
"""Models and images that are installed with tracer; in a checkout, links to those of `models/`."""


def check_writable(path: Path, force: bool) -> None:
    """Raises InputError if `path` exists (unless `force`) or its folder is not writable.

    Only a regular file is replaced, never a device, a pipe, a folder or a file that a running
    command writes; links are followed.
    """
    check_place(path)
    if path.exists() and not force:
        raise InputError(f"{path}: {_EXISTS[0]}", _EXISTS[1])
    refuse_in_use(path)


def check_place(path: Path) -> None:
    """Raises InputError if `path` is no regular file, or its folder is not writable.

    Removes what processes that were killed while they wrote left in the folder.
    """
    with errors_naming(path):
        target = _target(path)
        if not target.parent.is_dir():
            raise InputError(f"{path}: the folder {target.parent} does not exist", "Make it first.")
    try:  # permissions do not suffice: file systems are read-only, full, or virtual
        sweep(target.parent)
        with temporary_file(target.parent):
            return
    except OSError as error:
        raise InputError(
            f"{path}: the folder cannot be written to ({error.strerror or error})"
        ) from error


def _target(path: Path) -> Path:
    """Returns the file that `path` leads to. Raises InputError for a folder, a device or a pipe."""
    target = path.resolve()
    kind = target.stat().st_mode if target.exists() else None
    if kind is not None and stat.S_ISDIR(kind):
        raise InputError(f"{path}: is a folder", "Name a file.")
    if kind is not None and not stat.S_ISREG(kind):
        raise InputError(
            f"{path}: is a device or a pipe, not a file",
            "Name a file; -o - writes to standard output.",
        )
    return target


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
            return stream.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def told_of(path: Path) -> None:
    """Takes note that the user knows of a file, or need not."""
    _untold.pop(path, None)


def begin() -> None:
    """Forgets what was written before, as by an earlier command of this process."""
    _untold.clear()


def untold() -> list[Path]:
    """Returns the files that were written, stand, and that nobody was told of."""
    return [path for path in _untold if path.exists()]


def write_atomically(path: Path, data: bytes, force: bool = True) -> None:
    """Writes `data` to `path`, or to the target of a link, completely or not at all.

    The data are on the disk on return. Raises InputError if the disk is full or the folder gone, if
    a running command writes to the same file, or, unless `force`, if a file is there by then.
    """
    refuse_in_use(path)
    with _temporary_with(path, data) as (temporary, target):
        _move(temporary, target, force)
        _untold[path] = None


def create_atomically(path: Path, data: bytes) -> bool:
    """Writes `data` as `write_atomically`, but returns False if a file is at `path` by then."""
    with _temporary_with(path, data) as (temporary, target):
        try:
            _move(temporary, target, force=False)
        except FileExistsError:
            return False
        _untold[path] = None
    return True


def write_with_data(
    path: Path, write_data: Callable[[BinaryIO], None], content: Callable[[str], bytes],
    force: bool = True,
) -> Path:  # fmt: skip
    """Writes a file that refers to a file of data beside it: both completely, or none of them.

    `write_data` writes the data to a stream. They get the first free name of PATH.data,
    PATH.2.data, … and `content` returns what PATH contains for that name. So a file that is
    replaced has its own data until the moment it is replaced. Returns the path of the data. Raises
    the errors of `write_atomically`.
    """
    refuse_in_use(path)
    with errors_naming(path):
        target = _target(path)
        with temporary_file(target.parent) as new_data, temporary_file(target.parent) as new:
            with new_data.open("wb") as stream:
                write_data(stream)
                _flush(stream)
            free = (target.with_name(name) for name in data_names(target))
            for data in itertools.filterfalse(os.path.lexists, free):
                with new.open("wb") as stream:
                    stream.write(content(data.name))
                    _flush(stream)
                with without_signals():
                    try:
                        _move(new_data, data, force=False)
                    except FileExistsError:
                        continue
                    try:
                        _move(new, target, force)
                    except OSError:
                        data.unlink()
                        raise
                _untold[path] = None
                break
        _sync_folder(target.parent)
    return data


def write_with_companion(
    path: Path, data: bytes, companion: Path, content: bytes, force: bool = True
) -> None:
    """Writes `data` to `path` and a small `content` to `companion`: both completely, or neither.

    A file that was at `companion` stays as it was where `path` cannot be written. Raises the errors
    of `write_atomically`.
    """
    refuse_in_use(path)
    refuse_in_use(companion)
    with (
        _temporary_with(path, data) as new,
        _temporary_with(companion, content) as (beside, second),
    ):
        before = second.read_bytes() if second.exists() else None
        with without_signals():
            _move(beside, second, force)
            try:
                with errors_naming(path):
                    _move(*new, force)
            except InputError:
                second.unlink() if before is None else second.write_bytes(before)
                raise
            _untold[path] = _untold[companion] = None


def data_names(path: Path) -> Iterator[str]:
    """Yields the names that data beside `path` may have, in the order they are tried."""
    name = path.resolve().name
    yield f"{name}.data"
    yield from (f"{name}.{number}.data" for number in itertools.count(2))


def _move(temporary: Path, target: Path, force: bool) -> None:
    """Gives a temporary file its name.

    Raises FileExistsError, unless `force`, if a file has it by then.
    """
    if not force:
        try:
            os.link(temporary, target)
            return
        except OSError:  # a name that is taken, or a file system without links
            if os.path.lexists(target):
                raise FileExistsError(target) from None
    temporary.replace(target)


@contextlib.contextmanager
def _temporary_with(path: Path, data: bytes) -> Iterator[tuple[Path, Path]]:
    """Gives a temporary file that holds `data`, and the target at `path` that it is to become."""
    with errors_naming(path):
        target = _target(path)
        with temporary_file(target.parent) as temporary:
            with temporary.open("wb") as stream:
                stream.write(data)
                _flush(stream)
            yield temporary, target
        _sync_folder(target.parent)


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


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
def errors_naming(path: Path) -> Iterator[None]:
    """Turns errors of the system into an InputError that names the file."""
    try:
        yield
    except FileExistsError as error:
        raise InputError(f"{path}: {_EXISTS[0]}", _EXISTS[1]) from error
    except (OSError, RuntimeError) as error:  # RuntimeError: circular links
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be written ({reason})") from error


@contextlib.contextmanager
def without_signals() -> Iterator[None]:
    """Lets signals that end a command wait for the end of the block, which must not stop half way.

    Compilers call back into Python, and an exception in there is lost. Outside the main thread this
    does nothing: handlers of signals run in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _ENDING_SIGNALS}
    # None is a handler that Python did not install, and could not install again.
    replaced = {number: handler for number, handler in handlers.items() if handler is not None}
    for number in replaced:
        signal.signal(number, lambda one, frame: arrived.append(one))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        for one in arrived:
            signal.raise_signal(one)


def cache_folder() -> Path:
    """Returns the user's cache folder for this program; it may not exist yet."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or _home() / "AppData/Local"
    elif sys.platform == "darwin":
        base = _home() / "Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or _home() / ".cache"
    return Path(base) / "tracer"


def _home() -> Path:
    """Returns the home of the user, or a place that takes no files if there is none."""
    try:
        return Path.home()
    except RuntimeError:  # a user that the system does not know, as in containers
        return Path(os.devnull)


def cached_file(kind: str, key: object, within: Path | None = None) -> Path:
    """Returns the file of this kind for `key`, on whose repr the measurement depends.

    `within` is the folder (default: the user's cache folder).
    """
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
    return (within or cache_folder()) / f"{kind}-{digest}.json"


def read_cached(path: Path) -> bytes | None:
    """Returns the content of a file; None if it cannot be read, or is a pipe or a device."""
    try:
        return read_regular(path)
    except InputError:
        return None


def store_in_cache(path: Path, data: bytes) -> bool:
    """Writes `data`; returns whether it succeeded. Without a cache one only measures again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        write_atomically(path, data)
        told_of(path)
    except (OSError, TracerError):
        return False
    return True


def example(name: str) -> Path:
    """Returns an installed file; raises InputError where it is missing."""
    path = EXAMPLES / name
    if not path.is_file():
        raise InputError(f"{path}: the file is missing", "Install tracer again.")
    return path
