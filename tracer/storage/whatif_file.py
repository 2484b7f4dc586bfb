"""A what-if as a .trace file: each evaluation as soon as it is computed, the result at the end.

Each evaluation is a transaction, so an interrupted run loses only the evaluation in progress. The
result could be recomputed from the evaluations and one pass over the data; it is stored so that
views need no model.
"""

import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.register import NARROWEST, WIDEST
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.errors import InputError
from tracer.records.whatif import REFERENCE_BITS, Answer, Evaluation, Variant, WhatIf
from tracer.storage import stored_file, stored_sums, trace_database
from tracer.storage.stored_file import as_text, decoded, naming
from tracer.storage.trace_database import FORMAT, WHAT_IF
from tracer.support.files import create_atomically, write_atomically
from tracer.support.temporary import FileInUse, InUseError

R = TypeVar("R")
_Fields = dict[str, msgspec.Raw]
"""A record whose fields are not decoded yet."""
_WAIT_MS = 5_000
"""How long an evaluation waits for another process to finish its transaction."""


class WhatIfFile:
    """The file at `path`, for evaluations that depend on what `identity` names.

    Continues an existing file. Raises InputError for a file that holds no what-if, or that has
    another identity. `force` begins anew, unless another process has the file open.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], force: bool = False) -> None:
        self.path = path
        is_new = not path.exists() and create_atomically(path, _database(identity))
        stored = None if is_new else _identity(path)
        if not (is_new or force) and stored != dict(identity):
            raise _differs(path, stored, identity)
        if force and not is_new:
            write_atomically(path, _database(identity))
        self._mark = FileInUse(path)
        try:
            file = trace_database.open_to_write(path, WHAT_IF.noun, WHAT_IF.hint)
        except BaseException:
            self._mark.release()
            raise
        self._database = file.database
        with self._writing(), self._database:
            self._database.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
            trace_database.put_meta(self._database, _head(identity))

    def close(self) -> None:
        """Closes the file."""
        self._database.close()
        self._mark.release()

    def find(self, variant: str, bits: Mapping[str, int]) -> Evaluation | None:
        """The stored evaluation of a variant at these widths; None if there is none.

        Raises InputError for one that is damaged.
        """
        with trace_database.name_damage(self.path, WHAT_IF.noun, "Give --force to begin anew."):
            row = self._database.execute(
                "SELECT record FROM evaluations WHERE variant = ? AND widths = ?",
                (variant, as_text(bits)),
            ).fetchone()
            if row is None:
                return None
            with naming(f"table evaluations, the row of {as_text(bits)}"):
                evaluation = decoded(row[0], Evaluation)
                _require(evaluation.bits == bits, "it is about other widths")
                return evaluation

    def store(self, variant: str, evaluation: Evaluation) -> None:
        """Writes an evaluation to disk."""
        with self._writing(), self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?)",
                (variant, as_text(evaluation.bits), as_text(evaluation)),
            )

    def finish(self, result: WhatIf) -> None:
        """Writes the result to disk, and replaces an earlier one."""
        with self._writing(), self._database:
            _insert(self._database, result)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raises InputError for errors of SQLite, and where the file is not at its path."""
        if not self._mark.is_at_path:  # what is written would be lost
            raise InputError(
                f"{self.path}: another process has replaced or removed the file",
                "Run the command again, with a file of its own.",
            )
        try:
            yield
        except sqlite3.Error as error:
            if stored_file.is_locked(error):
                raise InUseError(self.path) from error
            raise InputError(f"{self.path}: cannot be written ({error})") from error


def holds_what_if(path: Path) -> bool:
    """Whether a file holds a what-if, finished or not. Raises InputError where it is no trace."""
    with trace_database.open_file(path, "a trace", trace_database.TRACE.hint) as file:
        return trace_database.meta_of(file).get("kind") == WHAT_IF.kind


def load(path: Path) -> WhatIf:
    """Reads the result of a what-if. Raises InputError for a damaged or unfinished file."""
    with trace_database.reading(path, WHAT_IF) as (file, meta):
        if "result" not in meta:
            raise InputError(
                f"{path}: this what-if was interrupted",
                "Run the command that wrote it again to continue it.",
            )
        sums = stored_sums.sums_by_run(file)
        return trace_database.record(meta, "result", lambda text: _result(text, sums))


def dumps(result: WhatIf) -> bytes:
    """The bytes of a file that holds `result`, without the evaluations that a resumed run needs."""
    return _database({}, result)


def _database(identity: Mapping[str, str], result: WhatIf | None = None) -> bytes:
    """The bytes of a file without evaluations."""
    with closing(sqlite3.connect(":memory:")) as database:
        trace_database.create(database)
        trace_database.put_meta(database, _head(identity))
        if result is not None:
            _insert(database, result)
        database.commit()
        return database.serialize()


def _head(identity: Mapping[str, str]) -> dict[str, str]:
    assert WHAT_IF.kind is not None
    return {"format": str(FORMAT), "kind": WHAT_IF.kind, "identity": as_text(identity)}


def _insert(database: sqlite3.Connection, result: WhatIf) -> None:
    variants = []
    for one in result.variants:
        accumulator = one.answer.accumulator.to_plain()
        answer = _record(one.answer, accumulator=accumulator, sums=None)
        variants.append(_record(one, answer=answer))
    trace_database.put_meta(database, {"result": as_text(_record(result, variants=variants))})
    database.execute("DELETE FROM sums")
    for index, one in enumerate(result.variants):
        stored_sums.put_sums(database, index, one.answer.sums)


def _record(result: WhatIf | Variant | Answer, **converted: Any) -> dict[str, Any]:
    """The fields of a dataclass, with some of them `converted` to JSON types."""
    return {each.name: getattr(result, each.name) for each in fields(result)} | converted


def _result(text: str, sums: Mapping[int, tuple[PartialSums, ...]]) -> WhatIf:
    record = decoded(text, _Fields)
    variants = []
    for index, values in enumerate(decoded(record["variants"], list[_Fields])):
        with naming(f"variant {index + 1} of the result"):
            stored = decoded(values["answer"], _Fields)
            if len(decoded(stored["rows"], list[msgspec.Raw])) > WIDEST:
                raise ValueError(f"it has more than {WIDEST} rows, which are one for each width")
            accumulator = Accumulator.from_plain(decoded(stored["accumulator"], dict[str, Any]))
            own = sums.get(index, ())
            answer = _built(Answer, stored, accumulator=accumulator, sums=own)
            variant = _built(Variant, values, answer=answer)
            _check_variant(variant)
            variants.append(variant)
    if "energy" not in record and "priced" in record:  # its name in format 2
        record["energy"] = record["priced"]
    settings = stored_file.read_settings(record["settings"])
    result = _built(WhatIf, record, variants=tuple(variants), settings=settings)
    if not result.variants:
        raise ValueError("the result has no variant")
    if not isinstance(result.settings.get("data"), str):
        raise ValueError("the settings do not name the data")
    return result


def _built(kind: type[R], record: _Fields, **converted: Any) -> R:
    """A dataclass from a record; its `converted` fields are ready."""
    hints = get_type_hints(kind)
    names = record.keys() & (hints.keys() - converted.keys())
    plain = {}
    for name in sorted(names):
        with naming(name):
            plain[name] = decoded(record[name], hints[name])
    return kind(**plain, **converted)


def _identity(path: Path) -> dict[str, str] | None:
    """What the evaluations of a file depend on; None where it holds no what-if of this version.

    The file is opened to write, which first undoes what an interrupted process left unfinished.
    """
    try:
        file = trace_database.open_to_write(path, WHAT_IF.noun, WHAT_IF.hint)
        with closing(file.database), trace_database.name_damage(path, WHAT_IF.noun, WHAT_IF.hint):
            meta = trace_database.meta_of(file)
            is_what_if = meta.get("kind") == WHAT_IF.kind and int(meta["format"]) <= FORMAT
            return decoded(meta["identity"], dict[str, str]) if is_what_if else None
    except InUseError:
        raise
    except InputError:  # no trace, or a damaged one
        return None


def _differs(
    path: Path, stored: Mapping[str, str] | None, identity: Mapping[str, str]
) -> InputError:
    """The error for a file with another identity; None is no what-if at all."""
    hint = "Choose another name, or give --force to replace it."
    if stored is None:
        return InputError(f"{path}: the file exists, and holds no what-if of this tracer", hint)
    names = [n for n in {**stored, **identity} if stored.get(n) != identity.get(n)]
    differences = "; ".join(
        f"{name} {stored.get(name, 'unknown')}, now {identity.get(name, 'none')}" for name in names
    )
    return InputError(f"{path}: holds evaluations of something else: {differences}", hint)


def _check_variant(variant: Variant) -> None:
    """Raises ValueError for widths, energies or scores that do not belong together."""
    answer = variant.answer
    bits = [row.bits for row in answer.rows]
    _require(bool(bits), "it has no row")
    _require(len(set(bits)) == len(bits), "it has two rows of one width")
    _require(all(NARROWEST <= each <= WIDEST for each in bits), "a row has an impossible width")
    counts = [row.evaluation.overflows for row in answer.rows]
    _require(None not in counts, "a row counts no overflows")
    nodes = [work.node for work in variant.work]
    _require(len(set(nodes)) == len(nodes) > 0, "its nodes are not distinct")
    _require(
        all(len(each) == len(nodes) for each in variant.energies.values()),
        "its energies are those of other nodes",
    )
    _require(variant.pinned.bits.keys() < set(nodes), "its pins are not some of its nodes")
    widths = {*bits, REFERENCE_BITS, answer.observed, *variant.pinned.bits.values()}
    for choice in (answer.uniform, answer.each):
        if choice is not None:
            _require(len(choice.widths) == len(nodes), "an answer has other nodes")
            widths |= set(choice.widths)
    for evaluation in answer.evaluations:
        _require(evaluation.bits.keys() == set(nodes), "an evaluation is about other nodes")
        widths |= set(evaluation.bits.values())
    _require(widths <= variant.energies.keys(), "a width has no energies")
    _require(answer.each is None or answer.uniform is not None, "it has an answer C without B")
    scores = (answer.score, *(row.score for row in answer.rows))
    _require(all(map(math.isfinite, scores)), "a score is not finite")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
