"""The SQLite database in a .trace file: its tables, and reading one that may be anybody's.

A file is measured before it is opened, and has the tables of tracer alone, today's or those of an
earlier version. Rows have the types of a record, and what a cell expands to is bounded by the size
of the file.
"""

import io
import math
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.lib import format as npy

from tracer.errors import InputError, LimitError, UsageError
from tracer.support.temporary import InUseError
from tracer.support.types import Array, FloatArray

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)

FORMAT = 6
"""Version of the schema; raised when earlier versions of tracer could not read the file."""
_RUN = """position INTEGER PRIMARY KEY, executor TEXT NOT NULL, batch INTEGER, inputs TEXT NOT NULL,
    notes TEXT NOT NULL, wall_us BLOB NOT NULL, instrumented_us BLOB NOT NULL,
    tick_us REAL NOT NULL, empty_us BLOB"""
_CONFIGURED = f"{_RUN}, threads INTEGER, optimization TEXT"
_PHASED = f"{_CONFIGURED}, phase TEXT, past INTEGER"
_OF_SUMS = "position INTEGER, record TEXT NOT NULL, arrays BLOB NOT NULL"

_TABLES: Mapping[str, Sequence[str]] = {
    "meta": ("key TEXT PRIMARY KEY, value TEXT NOT NULL",),
    "runs": (f"{_PHASED}, returning_us REAL, use BLOB", _PHASED, _CONFIGURED, _RUN),
    "kernels": (
        """run INTEGER REFERENCES runs, position INTEGER, record TEXT NOT NULL,
    bias_us REAL NOT NULL, bias_error_us REAL, replayed_us REAL, samples BLOB NOT NULL,
    PRIMARY KEY (run, position)""",
    ),
    "sums": (
        f"run INTEGER, {_OF_SUMS}, PRIMARY KEY (run, position)",
        f"run INTEGER REFERENCES runs, {_OF_SUMS}, PRIMARY KEY (run, position)",
        f"variant INTEGER, {_OF_SUMS}, PRIMARY KEY (variant, position)",
    ),
    "float_sums": (f"run INTEGER, {_OF_SUMS}, PRIMARY KEY (run, position)",),
    "samples": ("run INTEGER PRIMARY KEY, nodes TEXT NOT NULL, arrays BLOB NOT NULL",),
    "evaluations": (
        """variant TEXT NOT NULL, widths TEXT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (variant, widths)""",
    ),
}
"""The columns of each table, and after them those of earlier versions.

In a what-if `sums.run` is the index of a variant, and other tables of runs are empty. Files from
before statistics by sample lack the table `samples`, those before format 5 `float_sums`. A trace
has a table `nodes` as well, whose columns are those of its node table.
"""
_VERSION = re.compile(r"[0-9]{1,9}")
_COLUMN = r'"[^"]*" (?:TEXT|INTEGER|REAL)'


def _normal(sql: str) -> str:
    """Returns a definition without the white space that tells nothing."""
    return re.sub(r"(?<=\() | (?=\))", "", " ".join(sql.split()))


_PATTERNS = {
    name: re.compile(
        "|".join(re.escape(_normal(f"CREATE TABLE {name} ({each})")) for each in definitions)
    )
    for name, definitions in _TABLES.items()
} | {"nodes": re.compile(rf'CREATE TABLE "nodes" \({_COLUMN}(?:, {_COLUMN})*\)')}


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds: its `kind` in the table `meta` (None for a trace), and in messages.

    `oldest` is the earliest format that can still be read.
    """

    kind: str | None
    noun: str
    command: str
    oldest: int

    @property
    def hint(self) -> str:
        """How to make such a file."""
        return f"Make one with: tracer {self.command} -o FILE.trace."


TRACE = Content(None, "a trace", "profile", 3)
WHAT_IF = Content("what-if", "a what-if", "whatif", 2)


class _MetaRow(msgspec.Struct, array_like=True):
    key: str
    value: str


def create(database: sqlite3.Connection) -> None:
    """Creates the tables, and records the version."""
    tables = (f"CREATE TABLE {name} ({columns[0]});" for name, columns in _TABLES.items())
    database.executescript(f"BEGIN; {' '.join(tables)} COMMIT;")
    put_meta(database, {"format": str(FORMAT)})


def put_meta(database: sqlite3.Connection, texts: Mapping[str, str]) -> None:
    """Inserts or replaces entries of the table `meta`."""
    database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", texts.items())


@contextmanager
def reading(path: Path, content: Content) -> "Iterator[tuple[StoredFile, dict[str, str]]]":
    """Opens a file read-only, and yields it with its table `meta`.

    Raises InputError for a file that is damaged, holds something else, or has a format that cannot
    be read; damage that shows in the `with` block is such an error as well.
    """
    with open_file(path, content) as file:
        file.check_integrity()
        meta = meta_of(file)
        if meta.get("kind") != content.kind:
            actual = WHAT_IF.noun if "kind" in meta else TRACE.noun
            what = f"{path}: holds {actual}, not {content.noun}"
            raise InputError(what, "tracer report renders it.")
        if record(meta, "format", int) < content.oldest:
            raise InputError(f"{path}: written by an older tracer", "Measure again.")
        yield file, meta


def meta_of(file: "StoredFile") -> dict[str, str]:
    """The table `meta`, in the order of its rows. Raises ValueError for malformed rows."""
    rows = file.rows("meta", typed_row(_MetaRow), "SELECT key, value FROM meta LIMIT 32")
    return {row.key: row.value for row in rows}


def record(meta: Mapping[str, str], key: str, decode: Callable[[str], T]) -> T:
    """What `decode` makes of an entry of the table `meta`.

    Raises ValueError that names table and row, where it cannot or there is no such entry.
    """
    with naming("table meta"):
        text = meta[key]
    with naming(f"table meta, row {[*meta].index(key) + 1} ({key})"):
        return decode(text)


_FILE = 2 << 30
"""Most bytes of a file. A million inferences of 100 kernels take some 100 MB."""
_STEPS, _STEPS_OF_A_BYTE = 20_000_000, 16
"""Most steps of SQLite's machine, in all and for each byte: some ten times what reading takes."""
_STEPS_OF_A_CALL = 20_000
_WAIT_S = 0.5
"""How long to wait for another process to finish its transaction."""
_MAGIC, _JOURNAL_VERSIONS, _WAL = b"SQLite format 3\0", slice(18, 20), 2


@contextmanager
def open_file(path: Path, content: Content) -> "Iterator[StoredFile]":
    """Opens `path` to read it.

    Raises InputError for a file that is damaged, absent, in use, or of a newer format. Whatever is
    malformed in the `with` block is such an error as well. Raises LimitError for a file that is too
    large.
    """
    with name_damage(path, content.noun, content.hint):
        size = _measured(path, content.hint)
        with closing(_connected(path, "ro")) as database, _stopping(database, size):
            database.execute("PRAGMA query_only = ON")
            _check_format(path, database)
            yield StoredFile(database, size)


def open_to_write(path: Path, content: Content) -> "StoredFile":
    """Opens an existing file to write rows, with the same checks and errors as `open_file`."""
    with name_damage(path, content.noun, content.hint):
        size = _measured(path, content.hint)
        database = _connected(path, "rw")
        try:
            with _stopping(database, size):
                _check_format(path, database)
        except BaseException:
            database.close()
            raise
        return StoredFile(database, size)


@contextmanager
def name_damage(path: Path, noun: str, hint: str) -> Iterator[None]:
    """Turns what is malformed into an InputError that names the file."""
    try:
        yield
    except MALFORMED as error:
        if isinstance(error, sqlite3.Error) and is_locked(error):
            raise InUseError.of(path) from error
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
        raise InputError(f"{path}: {'not a file' if path.exists() else 'no such trace'}", hint)
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


def _check_format(path: Path, database: sqlite3.Connection) -> None:
    """Raises InputError for a newer format, whose tables may be others; ValueError for damage.

    The table `meta` is read only if it is that of a trace, whatever else is in the file.
    """
    version = None
    with naming("table meta"):
        query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
        (sql,) = database.execute(query).fetchone() or (None,)
        if isinstance(sql, str) and _PATTERNS["meta"].fullmatch(_normal(sql)):
            query = "SELECT value FROM meta WHERE key = 'format'"
            (version,) = database.execute(query).fetchone() or (None,)
    if isinstance(version, str) and _VERSION.fullmatch(version) and int(version) > FORMAT:
        raise InputError(
            f"{path}: written by a newer tracer", "Upgrade: pip install -U tracer-onnx."
        )
    check_tables(database)


def check_tables(database: sqlite3.Connection) -> None:
    """Raises ValueError for anything but these tables: no view, trigger, index or other column."""
    for kind, name, sql in database.execute("SELECT type, name, sql FROM sqlite_master"):
        if kind == "index" and sql is None:  # of a primary key
            continue
        if kind != "table" or name not in _PATTERNS:
            raise ValueError(f"it has a {kind} '{name}', which no trace has")
        if not isinstance(sql, str) or not _PATTERNS[name].fullmatch(_normal(sql)):
            raise ValueError(f"the table {name} has other columns than a trace's")


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    database = sqlite3.connect(uri, uri=True, timeout=_WAIT_S)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL)
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


_MOST_BYTES, _MOST_DEPTH = 1 << 20, 8
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
