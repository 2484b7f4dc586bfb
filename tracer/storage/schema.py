"""The tables of a .trace file, today's and those of earlier versions."""

import re
import sqlite3
from collections.abc import Mapping, Sequence

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


def create(database: sqlite3.Connection) -> None:
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


def check(database: sqlite3.Connection) -> None:
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


def _pattern(name: str, definitions: Sequence[str]) -> re.Pattern[str]:
    texts = (re.escape(_normal(f"CREATE TABLE {name} ({each})")) for each in definitions)
    return re.compile("|".join(texts))


_PATTERNS = {name: _pattern(name, each) for name, each in _TABLES.items()} | {
    "nodes": re.compile(rf'CREATE TABLE "nodes" \({_COLUMN}(?:, {_COLUMN})*\)')
}
