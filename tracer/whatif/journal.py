"""A what-if as one SQLite file: every evaluation as soon as it is made, and the result at the end.

Each evaluation is a transaction of its own, so that whatever ends the process costs no more than
the one that was being made. The result can be told from the evaluations and one more pass over the
data; it is there so that views need no model.
"""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from tracer.accumulators.spec import plain_values
from tracer.errors import InputError, UsageError
from tracer.records.environment import Environment
from tracer.records.trace import ModelInfo
from tracer.storage import partial_sums
from tracer.whatif.evaluation import Evaluation
from tracer.whatif.result import Judgement, NodeWork, Priced, Variant, WhatIf
from tracer.whatif.search import Choice, Point
from tracer.whatif.sweep import Answer, Row, Screening
from tracer.whatif.widths import Pins

FORMAT = 2
"""Raised when a file of this version could not be read by the code before it."""

_KIND = "what-if"
_HINT = "Make one with: tracer whatif -o FILE.trace."
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE evaluations (
    variant TEXT NOT NULL, widths TEXT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (variant, widths)
);
CREATE TABLE sums (
    variant INTEGER, position INTEGER, record TEXT NOT NULL, arrays BLOB NOT NULL,
    PRIMARY KEY (variant, position)
);
"""
_ANSWER: Mapping[str, Any] = {
    "score": float, "samples": int, "rows": tuple[Row, ...], "guaranteed": int, "observed": int,
    "limiting": str, "uniform": Choice | None, "each": Choice | None, "front": tuple[Point, ...],
    "evaluations": tuple[Evaluation, ...], "screening": Screening | None,
}  # fmt: skip
"""The fields of an Answer that are plain already."""


class Journal:
    """The file at `path`, for evaluations of what `identity` names.

    Opened with what an earlier run left there. Raises InputError for a file that is no what-if's,
    or one of something else, whose differences are told; `force` replaces it then.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], force: bool = False) -> None:
        self.path = path
        if path.exists():
            found = _identity(path) if holds_what_if(path) else None
            if found != dict(identity) and not force:
                raise _other(path, found, identity)
            if found != dict(identity):
                path.unlink()
        with _told(path):
            self._database = sqlite3.connect(path)
            if not self._database.execute("SELECT 1 FROM sqlite_master").fetchone():
                self._database.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            self._put({"format": str(FORMAT), "kind": _KIND, "identity": _text(identity)})

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def find(self, variant: str, bits: Mapping[str, int]) -> Evaluation | None:
        """The evaluation of a variant at these widths, if it was made before."""
        with _told(self.path):
            row = self._database.execute(
                "SELECT record FROM evaluations WHERE variant = ? AND widths = ?",
                (variant, _text(bits)),
            ).fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=Evaluation)

    def keep(self, variant: str, evaluation: Evaluation) -> None:
        """Put an evaluation on the disk."""
        with _told(self.path), self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?)",
                (variant, _text(evaluation.bits), _text(evaluation)),
            )

    def finish(self, result: WhatIf) -> None:
        """Put the result on the disk, in place of an earlier one."""
        with _told(self.path), self._database:
            _insert(self._database, result)

    def _put(self, values: Mapping[str, str]) -> None:
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())


class Page:
    """The part of a journal that is one variant's: a `ledger.Store`."""

    def __init__(self, journal: Journal, variant: str) -> None:
        self._journal = journal
        self._variant = variant

    def find(self, bits: Mapping[str, int]) -> Evaluation | None:
        """The evaluation at these widths, if it was made before."""
        return self._journal.find(self._variant, bits)

    def keep(self, evaluation: Evaluation) -> None:
        """Put an evaluation on the disk."""
        self._journal.keep(self._variant, evaluation)


def holds_what_if(path: Path) -> bool:
    """Whether a file was written here, finished or not. Raises nothing: no file holds none."""
    try:
        return _meta(path).get("kind") == _KIND
    except (InputError, sqlite3.Error, OSError, ValueError):
        return False


def load(path: Path) -> WhatIf:
    """The result in a file. Raises InputError for one that is damaged, or was not finished."""
    try:
        meta = _meta(path)
        if int(meta["format"]) != FORMAT:
            raise InputError(f"{path}: written by another version of tracer", "Run it again.")
        if "result" not in meta:
            raise InputError(
                f"{path}: a what-if that did not come to its end",
                "Run the command that wrote it again: it goes on from there.",
            )
        with closing(_reading(path)) as database:
            return _result(database, msgspec.json.decode(meta["result"]))
    except (
        sqlite3.Error, msgspec.MsgspecError, zipfile.BadZipFile, KeyError, TypeError, ValueError,
        OverflowError, UsageError,
    ) as error:  # fmt: skip
        raise InputError(f"{path}: not a what-if, or a damaged one ({error})", _HINT) from error


def dumps(result: WhatIf) -> bytes:
    """The bytes of a file that holds `result`, without what is needed to go on."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_SCHEMA)
        meta = {"format": str(FORMAT), "kind": _KIND, "identity": "{}"}
        database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        _insert(database, result)
        database.commit()
        return database.serialize()


def _insert(database: sqlite3.Connection, result: WhatIf) -> None:
    record = {f.name: getattr(result, f.name) for f in fields(WhatIf)}
    record["variants"] = [_variant(one) for one in result.variants]
    database.execute("INSERT OR REPLACE INTO meta VALUES ('result', ?)", (_text(record),))
    database.execute("DELETE FROM sums")
    for number, one in enumerate(result.variants):
        for place, sums in enumerate(one.answer.sums):
            row = (number, place, *partial_sums.dumped(sums))
            database.execute("INSERT INTO sums VALUES (?, ?, ?, ?)", row)


def _variant(one: Variant) -> dict[str, Any]:
    record = {f.name: getattr(one, f.name) for f in fields(Variant)}
    answer = {name: getattr(one.answer, name) for name in _ANSWER}
    answer["accumulator"] = plain_values.dumped(one.answer.accumulator)
    return {**record, "answer": answer}


def _result(database: sqlite3.Connection, record: dict[str, Any]) -> WhatIf:
    variants = tuple(
        _read_variant(database, number, said) for number, said in enumerate(record["variants"])
    )
    return WhatIf(
        model=msgspec.convert(record["model"], ModelInfo),
        environment=msgspec.convert(record["environment"], Environment),
        settings=record["settings"],
        judgement=msgspec.convert(record["judgement"], Judgement),
        priced=msgspec.convert(record["priced"], Priced),
        variants=variants,
        notes=tuple(record["notes"]),
    )


def _read_variant(database: sqlite3.Connection, number: int, said: dict[str, Any]) -> Variant:
    rows = database.execute(
        "SELECT record, arrays FROM sums WHERE variant = ? ORDER BY position", (number,)
    ).fetchall()
    answer = {name: msgspec.convert(said["answer"][name], kind) for name, kind in _ANSWER.items()}
    return Variant(
        weight_bits=said["weight_bits"],
        activation_bits=said["activation_bits"],
        pinned=msgspec.convert(said["pinned"], Pins),
        answer=Answer(
            accumulator=plain_values.loaded(said["answer"]["accumulator"]),
            sums=tuple(partial_sums.loaded(*row) for row in rows),
            **answer,
        ),
        work=msgspec.convert(said["work"], tuple[NodeWork, ...]),
        energies=msgspec.convert(said["energies"], dict[int, tuple[float, ...]], strict=False),
    )


def _identity(path: Path) -> dict[str, str]:
    found: dict[str, str] = msgspec.json.decode(_meta(path)["identity"])
    return found


def _other(path: Path, found: Mapping[str, str] | None, wanted: Mapping[str, str]) -> InputError:
    """What a file that exists is of, and this is not."""
    hint = "Choose another name, or give --force to begin anew."
    if found is None:
        return InputError(f"{path}: the file exists, and is no what-if's", hint)
    different = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    told = "; ".join(
        f"{name} {found.get(name, 'not known')}, now {wanted.get(name, 'none')}"
        for name in different
    )
    return InputError(f"{path}: is of something else: {told}", hint)


def _meta(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise InputError(f"{path}: no such trace", _HINT)
    with closing(_reading(path)) as database:
        return dict(database.execute("SELECT key, value FROM meta").fetchall())


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What SQLite refuses, as an InputError that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be written ({error})") from error


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
