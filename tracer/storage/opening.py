"""Opens an SQLite file that may be anybody's: measured first, and of tables of tracer alone."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tracer.errors import InputError, LimitError
from tracer.storage import schema, stored_file
from tracer.storage.stored_file import MALFORMED, StoredFile, code, is_locked, naming, reason
from tracer.support.temporary import InUseError

_FILE = 2 << 30
"""Most bytes of a file. A million inferences of 100 kernels take some 100 MB."""
_STEPS, _STEPS_OF_A_BYTE = 20_000_000, 16
"""Most steps of SQLite's machine, in all and for each byte: some ten times what reading takes."""
_STEPS_OF_A_CALL = 20_000
_WAIT_S = 0.5
"""How long to wait for another process to finish its transaction."""
_MAGIC, _JOURNAL_VERSIONS, _WAL = b"SQLite format 3\0", slice(18, 20), 2


@contextmanager
def opened(path: Path, noun: str, hint: str) -> Iterator[StoredFile]:
    """Opens `path` to read it.

    Raises InputError for a file that is damaged, absent, in use, or of a newer format.

    Whatever is malformed in the `with` block is such an error as well; it says that the file is
    not `noun`. Raises LimitError for a file that is too large.
    """
    with damage_told(path, noun, hint):
        size = _measured(path, hint)
        with closing(_connected(path, "ro")) as database, _stopping(database, size):
            database.execute("PRAGMA query_only = ON")
            _check(path, database)
            yield StoredFile(database, size)


def opened_to_write(path: Path, noun: str, hint: str) -> StoredFile:
    """Opens an existing file to write rows, with the same checks and errors as `opened`."""
    with damage_told(path, noun, hint):
        size = _measured(path, hint)
        database = _connected(path, "rw")
        try:
            with _stopping(database, size):
                _check(path, database)
        except BaseException:
            database.close()
            raise
        return StoredFile(database, size)


@contextmanager
def damage_told(path: Path, noun: str, hint: str) -> Iterator[None]:
    """Turns what is malformed into an InputError that names the file."""
    try:
        yield
    except MALFORMED as error:
        if isinstance(error, sqlite3.Error) and is_locked(error):
            raise InUseError(path) from error
        if code(error) == sqlite3.SQLITE_READONLY:  # a transaction of a dead process is to undo
            raise InputError(
                f"{path}: the command that wrote it was interrupted",
                "Run that command again to continue it.",
            ) from error
        raise InputError(f"{path}: not {noun}, or a damaged one ({reason(error)})", hint) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _measured(path: Path, hint: str) -> int:
    """Returns the size of the file, after a look at its header."""
    if not path.is_file():
        what = "not a file" if path.exists() else "no such trace"
        raise InputError(f"{path}: {what}", hint)
    size = path.stat().st_size
    if size > _FILE:
        raise LimitError(f"{path}: {size:,} bytes", f"A trace has at most {_FILE:,}.")
    with path.open("rb") as stream:
        header = stream.read(100)
    if header[: len(_MAGIC)] != _MAGIC:
        raise ValueError("file is not a database")
    if _WAL in header[_JOURNAL_VERSIONS]:  # SQLite would write files beside it
        raise InputError(
            f"{path}: another program has put it into SQLite's WAL mode",
            f"Convert it with: sqlite3 '{path}' 'PRAGMA journal_mode = DELETE'.",
        )
    return size


def _check(path: Path, database: sqlite3.Connection) -> None:
    """Raises InputError for a newer format, whose tables may be others; ValueError for damage."""
    with naming("table meta"):
        version = schema.version(database)
    if version is not None and version > schema.FORMAT:
        raise InputError(
            f"{path}: written by a newer tracer", "Upgrade: pip install -U tracer-onnx."
        )
    schema.check(database)


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    database = sqlite3.connect(uri, uri=True, timeout=_WAIT_S)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, stored_file.CELL)
    database.execute("PRAGMA trusted_schema = OFF")
    return database


@contextmanager
def _stopping(database: sqlite3.Connection, size: int) -> Iterator[None]:
    """Ends statements that take more steps than a file of this size needs. Raises ValueError.

    The handler also lets signals in. SQLite swallows what they raise, and is interrupted.
    """
    left = (_STEPS + _STEPS_OF_A_BYTE * size) // _STEPS_OF_A_CALL

    def step() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    database.set_progress_handler(step, _STEPS_OF_A_CALL)
    try:
        yield
    except sqlite3.OperationalError as error:
        if code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        if left >= 0:
            raise KeyboardInterrupt from error
        raise ValueError("reading it takes too many steps") from error
    finally:
        database.set_progress_handler(None, 0)
