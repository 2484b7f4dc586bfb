"""A what-if as a .trace file: each evaluation as soon as it is computed, the result at the end.

Each evaluation is a transaction, so an interrupted run loses only the evaluation in progress. The
result could be recomputed from the evaluations and one pass over the data; it is stored so that
views need no model.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from tracer.accumulators.spec import plain_values
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.errors import InputError
from tracer.records.whatif import Answer, Evaluation, Variant, WhatIf
from tracer.storage import trace_database
from tracer.storage.trace_database import FORMAT, WHAT_IF, as_text

R = TypeVar("R")


class WhatIfFile:
    """The file at `path`, for evaluations that depend on what `identity` names.

    Continues an existing file. Raises InputError for a file that holds no what-if, or that has
    another identity; `force` replaces it.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], force: bool = False) -> None:
        self.path = path
        if path.exists():
            stored = _identity(path) if holds_what_if(path) else None
            if stored != dict(identity) and not force:
                raise _differs(path, stored, identity)
            if stored != dict(identity):
                path.unlink()
        with _writing(path):
            self._database = sqlite3.connect(path)
            if not self._database.execute("SELECT 1 FROM sqlite_master").fetchone():
                trace_database.create(self._database)
            with self._database:
                trace_database.put_meta(self._database, _head(identity))

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def find(self, variant: str, bits: Mapping[str, int]) -> Evaluation | None:
        """The stored evaluation of a variant at these widths; None if there is none."""
        with _writing(self.path):
            row = self._database.execute(
                "SELECT record FROM evaluations WHERE variant = ? AND widths = ?",
                (variant, as_text(bits)),
            ).fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=Evaluation)

    def store(self, variant: str, evaluation: Evaluation) -> None:
        """Writes an evaluation to disk."""
        with _writing(self.path), self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?)",
                (variant, as_text(evaluation.bits), as_text(evaluation)),
            )

    def finish(self, result: WhatIf) -> None:
        """Writes the result to disk, and replaces an earlier one."""
        with _writing(self.path), self._database:
            _insert(self._database, result)


def holds_what_if(path: Path) -> bool:
    """Whether a file holds a what-if, finished or not; False for a file that cannot be read."""
    try:
        return trace_database.meta_of(path).get("kind") == WHAT_IF.kind
    except (InputError, sqlite3.Error, OSError, ValueError):
        return False


def load(path: Path) -> WhatIf:
    """Reads the result of a what-if. Raises InputError for a damaged or unfinished file."""
    with trace_database.reading(path, WHAT_IF) as (database, meta):
        if "result" not in meta:
            raise InputError(
                f"{path}: this what-if was interrupted",
                "Run the command that wrote it again to continue it.",
            )
        return _result(msgspec.json.decode(meta["result"]), trace_database.sums_by_run(database))


def dumps(result: WhatIf) -> bytes:
    """The bytes of a file that holds `result`, without the evaluations that a resumed run needs."""
    with closing(sqlite3.connect(":memory:")) as database:
        trace_database.create(database)
        trace_database.put_meta(database, _head({}))
        _insert(database, result)
        database.commit()
        return database.serialize()


def _head(identity: Mapping[str, str]) -> dict[str, str]:
    assert WHAT_IF.kind is not None
    return {"format": str(FORMAT), "kind": WHAT_IF.kind, "identity": as_text(identity)}


def _insert(database: sqlite3.Connection, result: WhatIf) -> None:
    variants = [_record(one, answer=_answer(one.answer)) for one in result.variants]
    record = _record(result, variants=variants)
    trace_database.put_meta(database, {"result": as_text(record)})
    database.execute("DELETE FROM sums")
    for index, one in enumerate(result.variants):
        trace_database.put_sums(database, index, one.answer.sums)


def _answer(answer: Answer) -> dict[str, Any]:
    return _record(answer, accumulator=plain_values.dumped(answer.accumulator), sums=None)


def _record(result: WhatIf | Variant | Answer, **converted: Any) -> dict[str, Any]:
    """The fields of a dataclass, with some of them `converted` to JSON types."""
    return {each.name: getattr(result, each.name) for each in fields(result)} | converted


def _result(record: dict[str, Any], sums: Mapping[int, tuple[PartialSums, ...]]) -> WhatIf:
    variants = []
    for index, values in enumerate(record["variants"]):
        accumulator = plain_values.loaded(values["answer"]["accumulator"])
        answer = _built(Answer, values["answer"], accumulator=accumulator, sums=sums.get(index, ()))
        variants.append(_built(Variant, values, answer=answer))
    record.setdefault("energy", record.get("priced"))  # its name in format 2
    return _built(WhatIf, record, variants=tuple(variants))


def _built(kind: type[R], record: Mapping[str, Any], **converted: Any) -> R:
    """A dataclass from a record; its `converted` fields are ready."""
    hints = get_type_hints(kind)
    names = record.keys() & (hints.keys() - converted.keys())
    plain = {name: msgspec.convert(record[name], hints[name], str_keys=True) for name in names}
    return kind(**plain, **converted)


def _identity(path: Path) -> dict[str, str]:
    identity: dict[str, str] = msgspec.json.decode(trace_database.meta_of(path)["identity"])
    return identity


def _differs(
    path: Path, stored: Mapping[str, str] | None, identity: Mapping[str, str]
) -> InputError:
    """The error for a file with another identity; None is no what-if at all."""
    hint = "Choose another name, or give --force to replace it."
    if stored is None:
        return InputError(f"{path}: the file exists, and holds no what-if", hint)
    names = [n for n in {**stored, **identity} if stored.get(n) != identity.get(n)]
    differences = "; ".join(
        f"{name} {stored.get(name, 'unknown')}, now {identity.get(name, 'none')}" for name in names
    )
    return InputError(f"{path}: holds evaluations of something else: {differences}", hint)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raises InputError, with the name of the file, for errors of SQLite."""
    try:
        yield
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be written ({error})") from error
