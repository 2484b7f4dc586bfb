"""The SQLite database in a .trace file: what it holds, its version, and its partial sums."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.errors import InputError
from tracer.storage import opening, partial_sums, schema
from tracer.storage.schema import FORMAT
from tracer.storage.stored_file import StoredFile, naming, typed_row

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


class _SumsRow(msgspec.Struct, array_like=True):
    run: int
    position: int
    record: str
    arrays: bytes


def create(database: sqlite3.Connection) -> None:
    """Creates the tables, and records the version."""
    schema.create(database)
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


def sums_by_run(file: StoredFile) -> dict[int, tuple[PartialSums, ...]]:
    """All partial sums, by run or variant (a column that format 2 called `variant`)."""

    def build(cells: object) -> tuple[int, PartialSums]:
        row = typed_row(_SumsRow)(cells)
        return row.run, partial_sums.loaded(row.record, file.arrays(row.arrays))

    sums: dict[int, list[PartialSums]] = {}
    for run, each in file.rows("sums", build, "SELECT * FROM sums ORDER BY 1, 2"):
        sums.setdefault(run, []).append(each)
    return {run: tuple(each) for run, each in sums.items()}


@contextmanager
def reading(path: Path, content: Content) -> Iterator[tuple[StoredFile, dict[str, str]]]:
    """Opens a file read-only, and yields it with its table `meta`.

    Raises InputError for a file that is damaged, holds something else, or has a format that cannot
    be read; damage that shows in the `with` block is such an error as well.
    """
    with opening.opened(path, content.noun, content.hint) as file:
        file.check_integrity()
        meta = meta_of(file)
        _check(path, meta, content)
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


def _check(path: Path, meta: Mapping[str, str], content: Content) -> None:
    if meta.get("kind") != content.kind:
        actual = WHAT_IF.noun if "kind" in meta else TRACE.noun
        raise InputError(f"{path}: holds {actual}, not {content.noun}", "tracer report renders it.")
    if record(meta, "format", int) < content.oldest:
        raise InputError(f"{path}: written by an older tracer", "Measure again.")
