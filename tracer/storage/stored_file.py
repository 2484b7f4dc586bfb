"""Reads the rows and cells of an SQLite file that may be anybody's, each within limits.

Rows have the types of a record, and what a cell expands to is bounded by the size of the file.
"""

import io
import math
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.lib import format as npy

from tracer.errors import UsageError
from tracer.support.types import Array, FloatArray

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)
CELL = 64 << 20
"""Most bytes of a cell. SQLite refuses a longer one before it allocates."""
_TIMES, _ARRAYS = 128 << 20, 512 << 20
"""Most bytes of the times in a cell (16 million inferences), and of the arrays in a cell."""
_EXPANDED, _EXPANSION = 192 << 20, 64
"""Most bytes that all cells expand to, for any file and for each byte of it.

Times of a profiler in whole microseconds compress to a tenth, or to a hundredth if all are equal.
"""
_CHUNK = 1 << 20
"""Bytes that are unpacked at a time."""
LONGEST_US = 1e15
"""Longest time, µs. Statistics of much longer ones are not finite."""
_MEMBERS = 64
"""Most arrays in a cell; statistics of sums have 17."""
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
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

    def has(self, table: str) -> bool:
        """Returns whether the file has a table, which older files may lack."""
        query = "SELECT name FROM sqlite_master WHERE name = ?"
        return self.database.execute(query, (table,)).fetchone() is not None

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
        with naming(lambda: f"table {table}, row {len(found) + 1}"):
            for row in cursor:
                found.append(build(row))
        return found

    def times(self, blob: bytes, count: int | None = None) -> FloatArray:
        """Returns compressed float64, finite, of which there are `count`. Raises ValueError."""
        most = min(_TIMES if count is None else 8 * count, self._room)
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(blob, most + 1)
        self._take(len(data))
        if not unpacking.eof or count not in (None, len(data) / 8):
            raise ValueError("times are cut short, or more than there may be")
        values = np.frombuffer(data, "<f8").astype(np.float64, copy=False)
        if not (np.abs(values) <= LONGEST_US).all():
            raise ValueError("a time is not a number, or longer than 30 years")
        return values

    def arrays(self, blob: bytes) -> dict[str, Array]:
        """Returns the arrays of integers in an .npz. Raises ValueError or BadZipFile."""
        with zipfile.ZipFile(io.BytesIO(blob)) as archive:
            members = archive.infolist()
            if len(members) > _MEMBERS:
                raise ValueError(f"{len(members)} arrays, at most {_MEMBERS}")
            size = sum(member.file_size for member in members)
            if size > _ARRAYS:
                raise ValueError(f"arrays of {size:,} bytes, at most {_ARRAYS:,}")
            self._take(size)
            return {m.filename.removesuffix(".npy"): _array(archive, m) for m in members}

    def _take(self, nbytes: int) -> None:
        self._room -= nbytes
        if self._room < 0:
            raise ValueError("compressed cells expand to more than a file of this size may hold")


def as_text(value: object) -> str:
    """JSON of a record."""
    return msgspec.json.encode(value).decode()


def decoded(text: str | bytes, kind: type[T]) -> T:
    """Returns JSON as a `kind` that can be written as JSON again. Raises MsgspecError."""
    value = msgspec.json.decode(text, type=kind)
    msgspec.json.encode(value)  # a number of 100 digits cannot
    return value


def typed_row(kind: type[R]) -> Callable[[Any], R]:
    """Returns a function that checks the cells of a row against the fields of `kind`, in order.

    It raises ValueError that names the column.
    """

    def convert(row: Any) -> R:
        try:
            return msgspec.convert(row, kind, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            columns = kind.__struct_fields__
            text = re.sub(r"\$\[(\d+)\]", lambda place: columns[int(place[1])], str(error))
            raise ValueError(text) from error

    return convert


@contextmanager
def naming(place: str | Callable[[], str]) -> Iterator[None]:
    """Names the table and the row, or another place, in which something is malformed."""
    try:
        yield
    except MALFORMED as error:
        if code(error) in (*_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_READONLY):
            raise  # is not about this row
        where = place if isinstance(place, str) else place()
        raise ValueError(f"{where}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Returns why a decoder refused, in words."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UsageError):
        return error.what
    if code(error) == sqlite3.SQLITE_TOOBIG:
        return f"a cell of more than {CELL >> 20} MiB"
    return str(error) or type(error).__name__


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another process holds the file."""
    return code(error) in _LOCKED


def code(error: Exception) -> int | None:
    """Returns SQLite's code of an error without its details; None for any other error."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Returns an array of integers, unpacked piece by piece into its place.

    zipfile reads no more bytes than the member declares.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"the array {member.filename} is compressed in an unknown way")
    with archive.open(member) as stream:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError(f"the array {member.filename} has an unknown version")
        shape, is_fortran, dtype = npy.read_array_header_1_0(stream)
        rest = member.file_size - stream.tell()
        if dtype != np.dtype("<i8") or min(shape, default=0) < 0 or math.prod(shape) * 8 != rest:
            raise ValueError(f"the array {member.filename} is not one of 64-bit integers")
        flat = np.empty(rest // 8, "<i8")
        place = flat.data.cast("B")
        for start in range(0, rest, _CHUNK):
            end = min(start + _CHUNK, rest)
            place[start:end] = stream.read(end - start)  # raises ValueError for too few bytes
    return flat.reshape(shape, order="F" if is_fortran else "C").astype(np.int64, copy=False)


_MOST_BYTES = 1 << 20
_MOST_DEPTH = 8
"""Settings of a merged trace hold those of other traces: a list of objects of lists and objects."""


class _Energy(msgspec.Struct):
    """The energy model of a trace, which views name."""

    model: str
    unit: str


def read_settings(text: str | msgspec.Raw) -> dict[str, Any]:
    """Returns settings by name. Raises ValueError or MsgspecError for malformed ones."""
    size = len(text) if isinstance(text, str) else len(bytes(text))
    if size > _MOST_BYTES:
        raise ValueError(f"settings of {size:,} bytes, at most {_MOST_BYTES:,}")
    settings = decoded(text, dict[str, Any])
    if not _is_shallow(settings, _MOST_DEPTH):
        raise ValueError(f"settings nested more than {_MOST_DEPTH} deep")
    with naming("energy"):
        msgspec.convert(settings.get("energy"), _Energy | str | None)
    with naming("merged"):
        msgspec.convert(settings.get("merged", []), list[dict[str, Any]])
    return settings


def _is_shallow(value: Any, depth: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_shallow(part, depth - 1) for part in parts)
