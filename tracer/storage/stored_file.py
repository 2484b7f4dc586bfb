"""Reads an SQLite file that may be anybody's: checked before it is believed, within fixed limits.

A file is measured before it is opened, has nothing but tables as tracer makes them, and gives up
its cells one by one. What a cell expands to is bounded by the size of the file.
"""

import io
import itertools
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.lib import format as npy

from tracer.errors import InputError, LimitError, UsageError
from tracer.storage import schema
from tracer.support.file_lock import InUseError
from tracer.support.types import Array, FloatArray

T = TypeVar("T")

_FILE = 2 << 30
"""Most bytes of a file. A million inferences of 100 kernels take some 100 MB."""
_CELL = 64 << 20
"""Most bytes of a cell. SQLite refuses a longer one before it allocates."""
_EXPANDED, _EXPANSION = 256 << 20, 64
"""Most bytes that all cells expand to, for any file and for each byte of it.

Times of a profiler in whole microseconds compress to a tenth, or to a hundredth if all are equal.
"""
_STEPS, _STEPS_OF_A_BYTE = 20_000_000, 16
"""Most steps of SQLite's machine, in all and for each byte: some ten times what reading takes."""
_STEPS_OF_A_CALL = 20_000
_WAIT_S = 0.5
"""How long to wait for another process to finish its transaction."""
_MEMBERS = 64
"""Most arrays in a cell; statistics of sums have 17."""
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_MAGIC, _JOURNAL_VERSIONS, _WAL = b"SQLite format 3\0", slice(18, 20), 2

MALFORMED = (
    sqlite3.Error, msgspec.MsgspecError, zlib.error, zipfile.BadZipFile, EOFError, LookupError,
    TypeError, ValueError, ArithmeticError, RuntimeError, UsageError,
)  # fmt: skip
"""What damaged or hostile cells raise, in SQLite, in decoders, or where values are put together."""


class StoredFile:
    """An open file: its `database`, and its cells within the limits."""

    def __init__(self, database: sqlite3.Connection, size: int) -> None:
        self.database = database
        self._room = _EXPANDED + _EXPANSION * size

    def check_integrity(self) -> None:
        """Raises ValueError where SQLite finds damage in the pages of the file."""
        (soundness,) = self.database.execute("PRAGMA integrity_check(1)").fetchone()
        if soundness != "ok":
            raise ValueError(" ".join(soundness.split()))

    def rows(
        self, table: str, build: Callable[[Any], T], query: str, parameters: Sequence[object] = ()
    ) -> list[T]:
        """Returns what `build` makes of each row. Raises ValueError that names table and row."""
        found: list[T] = []
        with naming(f"table {table}"):
            cursor = self.database.execute(query, parameters)
        for number in itertools.count(1):
            with naming(f"table {table}, row {number}"):
                row = next(cursor, None)
                if row is None:
                    return found
                found.append(build(row))
        raise AssertionError("count() does not end")

    def times(self, blob: bytes, count: int | None = None) -> FloatArray:
        """Returns compressed float64, finite, of which there are `count`. Raises ValueError."""
        most = self._room if count is None else min(8 * count, self._room)
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(blob, most + 1)
        self._take(len(data))
        if not unpacking.eof or count not in (None, len(data) / 8):
            raise ValueError("compressed times are cut short, or more than there are runs")
        values = np.frombuffer(data, "<f8").astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("a time is not finite")
        return values

    def arrays(self, blob: bytes) -> dict[str, Array]:
        """Returns the arrays of integers in an .npz. Raises ValueError or BadZipFile."""
        with zipfile.ZipFile(io.BytesIO(blob)) as archive:
            members = archive.infolist()
            if len(members) > _MEMBERS:
                raise ValueError(f"{len(members)} arrays, at most {_MEMBERS}")
            self._take(sum(member.file_size for member in members))
            return {m.filename.removesuffix(".npy"): _array(archive, m) for m in members}

    def _take(self, nbytes: int) -> None:
        self._room -= nbytes
        if self._room < 0:
            raise ValueError("compressed cells expand to more than a file of this size may hold")


def decoded(text: str | bytes, kind: type[T]) -> T:
    """Returns JSON as a `kind` that can be written as JSON again. Raises MsgspecError."""
    value = msgspec.json.decode(text, type=kind)
    msgspec.json.encode(value)  # a number of 100 digits cannot
    return value


def typed_row(kind: type[T]) -> Callable[[Any], T]:
    """Returns a function that checks the cells of a row against the fields of `kind`, in order."""

    def convert(row: Any) -> T:
        return msgspec.convert(row, kind, builtin_types=(bytes,))

    return convert


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Names the table and the row, or another place, in which something is malformed."""
    try:
        yield
    except MALFORMED as error:
        if _code(error) in (*_LOCKED, sqlite3.SQLITE_INTERRUPT):
            raise  # is not about this row
        raise ValueError(f"{place}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Returns why a decoder refused, in words."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UsageError):
        return error.what
    return str(error) or type(error).__name__


@contextmanager
def opened(path: Path, noun: str, hint: str) -> Iterator[StoredFile]:
    """Opens `path` to read it. Raises InputError for a file that is damaged, absent, or in use.

    Whatever is malformed in the `with` block is such an error as well; it says that the file is
    not `noun`. Raises LimitError for a file that is too large.
    """
    with damage_told(path, noun, hint):
        size = _measured(path, hint)
        with closing(_connected(path, "ro")) as database, _stopping(database, size):
            database.execute("PRAGMA query_only = ON")
            schema.check(database)
            yield StoredFile(database, size)


def opened_to_write(path: Path, noun: str, hint: str) -> StoredFile:
    """Opens an existing file to write rows, with the same checks and errors as `opened`."""
    with damage_told(path, noun, hint):
        size = _measured(path, hint)
        database = _connected(path, "rw")
        try:
            with _stopping(database, size):
                schema.check(database)
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
        if _code(error) in _LOCKED:
            raise InUseError(path) from error
        if _code(error) == sqlite3.SQLITE_READONLY:  # a transaction of a dead process is to undo
            raise InputError(
                f"{path}: the command that wrote it was interrupted",
                "Run that command again to continue it.",
            ) from error
        raise InputError(f"{path}: not {noun}, or a damaged one ({reason(error)})", hint) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another process holds the file."""
    return _code(error) in _LOCKED


def _code(error: Exception) -> int | None:
    """Returns SQLite's code of an error without its details; None for any other error."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _measured(path: Path, hint: str) -> int:
    """Returns the size of the file, after a look at its header."""
    if not path.is_file():
        raise InputError(f"{path}: no such trace", hint)
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


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    database = sqlite3.connect(uri, uri=True, timeout=_WAIT_S)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL)
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
        if _code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        if left >= 0:
            raise KeyboardInterrupt from error
        raise ValueError("reading it takes too many steps") from error
    finally:
        database.set_progress_handler(None, 0)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Returns an array of integers; zipfile reads no more bytes than the member declares."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"the array {member.filename} is compressed in an unknown way")
    data = archive.read(member)
    stream = io.BytesIO(data)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError(f"the array {member.filename} has an unknown version")
    shape, is_fortran, dtype = npy.read_array_header_1_0(stream)
    if dtype.kind not in "iu" or min(shape, default=0) < 0:
        raise ValueError(f"the array {member.filename} is not one of integers")
    flat = np.frombuffer(data, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C").astype(np.int64)
