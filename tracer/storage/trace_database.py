"""The SQLite database in a .trace file: schema, version, and errors of damaged files."""

import sqlite3
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pandas.errors import DatabaseError

from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.errors import InputError, UsageError
from tracer.storage import partial_sums

FORMAT = 4
"""Version of the schema; raised when earlier versions of tracer could not read the file."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (
    position INTEGER PRIMARY KEY, executor TEXT NOT NULL, batch INTEGER, inputs TEXT NOT NULL,
    notes TEXT NOT NULL, wall_us BLOB NOT NULL, instrumented_us BLOB NOT NULL,
    tick_us REAL NOT NULL, empty_us BLOB, threads INTEGER, optimization TEXT
);
CREATE TABLE kernels (
    run INTEGER REFERENCES runs, position INTEGER, record TEXT NOT NULL, bias_us REAL NOT NULL,
    bias_error_us REAL, replayed_us REAL, samples BLOB NOT NULL, PRIMARY KEY (run, position)
);
CREATE TABLE sums (
    run INTEGER, position INTEGER, record TEXT NOT NULL, arrays BLOB NOT NULL,
    PRIMARY KEY (run, position)
);
CREATE TABLE samples (run INTEGER PRIMARY KEY, nodes TEXT NOT NULL, arrays BLOB NOT NULL);
CREATE TABLE evaluations (
    variant TEXT NOT NULL, widths TEXT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (variant, widths)
);
"""
"""In a what-if `sums.run` is the index of a variant, and other tables of runs are empty.

Files from before statistics by sample lack the table `samples`.
"""


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


def create(database: sqlite3.Connection) -> None:
    """Creates the tables, and records the version."""
    database.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    put_meta(database, {"format": str(FORMAT)})


def put_meta(database: sqlite3.Connection, texts: Mapping[str, str]) -> None:
    """Inserts or replaces entries of the table `meta`."""
    database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", texts.items())


def as_text(value: object) -> str:
    """JSON of a record."""
    return msgspec.json.encode(value).decode()


def put_sums(database: sqlite3.Connection, run: int, sums: Sequence[PartialSums]) -> None:
    """Inserts the partial sums of a run or a variant."""
    rows = ((run, index, *partial_sums.dumped(each)) for index, each in enumerate(sums))
    database.executemany("INSERT INTO sums VALUES (?, ?, ?, ?)", rows)


def sums_by_run(database: sqlite3.Connection) -> dict[int, tuple[PartialSums, ...]]:
    """All partial sums, by run or variant (a column that format 2 called `variant`)."""
    sums: dict[int, tuple[PartialSums, ...]] = {}
    for run, _, *stored in database.execute("SELECT * FROM sums ORDER BY 1, 2"):
        sums[run] = (*sums.get(run, ()), partial_sums.loaded(*stored))
    return sums


def meta_of(path: Path) -> dict[str, str]:
    """The table `meta` of a file. Raises InputError where there is no file, and sqlite3.Error."""
    with _opened(path) as database:
        return _meta(database)


@contextmanager
def reading(path: Path, content: Content) -> Iterator[tuple[sqlite3.Connection, dict[str, str]]]:
    """Opens a file read-only, and yields the database and its table `meta`.

    Raises InputError for a file that is damaged, holds something else, or has a format that cannot
    be read; damage that shows in the `with` block is such an error as well.
    """
    try:
        with _opened(path, content.hint) as database:
            (soundness,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if soundness != "ok":
                raise ValueError(soundness)
            meta = _meta(database)
            _check(path, meta, content)
            yield database, meta
    except (
        # cells that are not what the schema says
        sqlite3.Error, DatabaseError, msgspec.MsgspecError, zlib.error, zipfile.BadZipFile,
        KeyError, TypeError, ValueError, OverflowError, UsageError,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path}: not {content.noun}, or a damaged one ({error})", content.hint
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


@contextmanager
def _opened(path: Path, hint: str = "") -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise InputError(f"{path}: no such trace", hint)
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        yield database


def _meta(database: sqlite3.Connection) -> dict[str, str]:
    return dict(database.execute("SELECT key, value FROM meta").fetchall())


def _check(path: Path, meta: Mapping[str, str], content: Content) -> None:
    if meta.get("kind") != content.kind:
        actual = WHAT_IF.noun if "kind" in meta else TRACE.noun
        raise InputError(f"{path}: holds {actual}, not {content.noun}", "tracer report renders it.")
    version = int(meta["format"])
    if version > FORMAT:
        raise InputError(
            f"{path}: written by a newer tracer", "Upgrade: pip install -U tracer-onnx."
        )
    if version < content.oldest:
        raise InputError(f"{path}: written by an older tracer", "Measure again.")
