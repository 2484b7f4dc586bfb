"""The SQLite database in a .trace file: its tables, and opening one that may be anybody's.

A file is measured before it is opened, and has the tables of tracer alone, today's or those of an
earlier version.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from tracer.errors import InputError, LimitError
from tracer.storage import stored_file
from tracer.storage.stored_file import (
    MALFORMED,
    StoredFile,
    code,
    is_locked,
    naming,
    reason,
    typed_row,
)
from tracer.support.temporary import InUseError

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


def create_tables(database: sqlite3.Connection) -> None:
    """Creates the tables."""
    tables = (f"CREATE TABLE {name} ({columns[0]});" for name, columns in _TABLES.items())
    database.executescript(f"BEGIN; {' '.join(tables)} COMMIT;")


def version(database: sqlite3.Connection) -> int | None:
    """Returns the format that a file says it has; None where it has no table that says so.

    The table is read only if it is that of a trace, whatever else is in the file.
    """
    query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    (sql,) = database.execute(query).fetchone() or (None,)
    if not isinstance(sql, str) or not _PATTERNS["meta"].fullmatch(_normal(sql)):
        return None
    (text,) = database.execute("SELECT value FROM meta WHERE key = 'format'").fetchone() or (None,)
    return int(text) if isinstance(text, str) and _VERSION.fullmatch(text) else None


def check_tables(database: sqlite3.Connection) -> None:
    """Raises ValueError for anything but these tables: no view, trigger, index or other column."""
    for kind, name, sql in database.execute("SELECT type, name, sql FROM sqlite_master"):
        if kind == "index" and sql is None:  # of a primary key
            continue
        if kind != "table" or name not in _PATTERNS:
            raise ValueError(f"it has a {kind} '{name}', which no trace has")
        if not isinstance(sql, str) or not _PATTERNS[name].fullmatch(_normal(sql)):
            raise ValueError(f"the table {name} has other columns than a trace's")


def _normal(sql: str) -> str:
    """Returns a definition without the white space that tells nothing."""
    return re.sub(r"(?<=\() | (?=\))", "", " ".join(sql.split()))


_PATTERNS = {
    name: re.compile(
        "|".join(re.escape(_normal(f"CREATE TABLE {name} ({each})")) for each in definitions)
    )
    for name, definitions in _TABLES.items()
} | {"nodes": re.compile(rf'CREATE TABLE "nodes" \({_COLUMN}(?:, {_COLUMN})*\)')}
_FILE = 2 << 30
"""Most bytes of a file. A million inferences of 100 kernels take some 100 MB."""
_STEPS, _STEPS_OF_A_BYTE = 20_000_000, 16
"""Most steps of SQLite's machine, in all and for each byte: some ten times what reading takes."""
_STEPS_OF_A_CALL = 20_000
_WAIT_S = 0.5
"""How long to wait for another process to finish its transaction."""
_MAGIC, _JOURNAL_VERSIONS, _WAL = b"SQLite format 3\0", slice(18, 20), 2


@contextmanager
def open_file(path: Path, noun: str, hint: str) -> Iterator[StoredFile]:
    """Opens `path` to read it.

    Raises InputError for a file that is damaged, absent, in use, or of a newer format.

    Whatever is malformed in the `with` block is such an error as well; it says that the file is
    not `noun`. Raises LimitError for a file that is too large.
    """
    with name_damage(path, noun, hint):
        size = _measured(path, hint)
        with closing(_connected(path, "ro")) as database, _stopping(database, size):
            database.execute("PRAGMA query_only = ON")
            _check_format(path, database)
            yield StoredFile(database, size)


def open_to_write(path: Path, noun: str, hint: str) -> StoredFile:
    """Opens an existing file to write rows, with the same checks and errors as `open_file`."""
    with name_damage(path, noun, hint):
        size = _measured(path, hint)
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


def _check_format(path: Path, database: sqlite3.Connection) -> None:
    """Raises InputError for a newer format, whose tables may be others; ValueError for damage."""
    with naming("table meta"):
        number = version(database)
    if number is not None and number > FORMAT:
        raise InputError(
            f"{path}: written by a newer tracer", "Upgrade: pip install -U tracer-onnx."
        )
    check_tables(database)


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


T = TypeVar("T")


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
    create_tables(database)
    put_meta(database, {"format": str(FORMAT)})


def put_meta(database: sqlite3.Connection, texts: Mapping[str, str]) -> None:
    """Inserts or replaces entries of the table `meta`."""
    database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", texts.items())


@contextmanager
def reading(path: Path, content: Content) -> Iterator[tuple[StoredFile, dict[str, str]]]:
    """Opens a file read-only, and yields it with its table `meta`.

    Raises InputError for a file that is damaged, holds something else, or has a format that cannot
    be read; damage that shows in the `with` block is such an error as well.
    """
    with open_file(path, content.noun, content.hint) as file:
        file.check_integrity()
        meta = meta_of(file)
        if meta.get("kind") != content.kind:
            actual = WHAT_IF.noun if "kind" in meta else TRACE.noun
            what = f"{path}: holds {actual}, not {content.noun}"
            raise InputError(what, "tracer report renders it.")
        if record(meta, "format", int) < content.oldest:
            raise InputError(f"{path}: written by an older tracer", "Measure again.")
        yield file, meta


def meta_of(file: StoredFile) -> dict[str, str]:
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
