"""A what-if as a .trace file: each evaluation as soon as it is computed, the result at the end.

Each evaluation is a transaction, so an interrupted run loses only the evaluation in progress. The
result could be recomputed from the evaluations and one pass over the data; it is stored so that
views need no model.

A `ShardFile` beside the trace holds results of shards until the trace has the result: a what-if
that was killed loses the shards in progress alone. Both hold numbers and names, and nothing that
runs.
"""

import contextlib
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
import numpy as np

from tracer.accumulators.spec import NARROWEST, WIDEST
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.errors import InputError
from tracer.records import whatif
from tracer.scaling.dispatcher import version
from tracer.scaling.pool import Shard
from tracer.storage import trace_database, trace_file
from tracer.storage.trace_database import FORMAT, WHAT_IF, as_text, decoded, naming
from tracer.support.files import create_atomically, write_atomically
from tracer.support.temporary import FileInUse, InUseError
from tracer.support.types import Array

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
            hint = "Choose another name, or give --force to replace it."
            if stored is None:
                what = "the file exists, and holds no what-if of this tracer"
                raise InputError(f"{path}: {what}", hint)
            names = [n for n in {**stored, **identity} if stored.get(n) != identity.get(n)]
            differences = "; ".join(
                f"{n} {stored.get(n, 'unknown')}, now {identity.get(n, 'none')}" for n in names
            )
            what = f"holds evaluations of something else: {differences}"
            raise InputError(f"{path}: {what}", hint)
        if force and not is_new:
            write_atomically(path, _database(identity))
        self._mark = FileInUse(path)
        try:
            file = trace_database.open_to_write(path, WHAT_IF)
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

    def find(self, variant: str, bits: Mapping[str, int]) -> whatif.Evaluation | None:
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
                evaluation = decoded(row[0], whatif.Evaluation)
                _require(evaluation.bits == bits, "it is about other widths")
                return evaluation

    def store(self, variant: str, evaluation: whatif.Evaluation) -> None:
        """Writes an evaluation to disk."""
        with self._writing(), self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?)",
                (variant, as_text(evaluation.bits), as_text(evaluation)),
            )

    def finish(self, result: whatif.WhatIf) -> None:
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
            if trace_database.is_locked(error):
                raise InUseError.of(self.path) from error
            raise InputError(f"{self.path}: cannot be written ({error})") from error


def holds_what_if(path: Path) -> bool:
    """Whether a file holds a what-if, finished or not. Raises InputError where it is no trace."""
    with trace_database.open_file(path, trace_database.TRACE) as file:
        return trace_database.meta_of(file).get("kind") == WHAT_IF.kind


def load(path: Path) -> whatif.WhatIf:
    """Reads the result of a what-if. Raises InputError for a damaged or unfinished file."""
    with trace_database.reading(path, WHAT_IF) as (file, meta):
        if "result" not in meta:
            raise InputError(
                f"{path}: this what-if was interrupted",
                "Run the command that wrote it again to continue it.",
            )
        sums = trace_file.sums_by_run(file)
        return trace_database.record(meta, "result", lambda text: _result(text, sums))


def dumps(result: whatif.WhatIf) -> bytes:
    """The bytes of a file that holds `result`, without the evaluations that a resumed run needs."""
    return _database({}, result)


def _database(identity: Mapping[str, str], result: whatif.WhatIf | None = None) -> bytes:
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


def _insert(database: sqlite3.Connection, result: whatif.WhatIf) -> None:
    def record(value: whatif.WhatIf | whatif.Variant | whatif.Answer) -> dict[str, Any]:
        return {each.name: getattr(value, each.name) for each in fields(value)}

    database.execute("DELETE FROM sums")
    variants = []
    for index, one in enumerate(result.variants):
        plain = {"accumulator": one.answer.accumulator.to_plain(), "sums": None}
        variants.append(record(one) | {"answer": record(one.answer) | plain})
        trace_file.put_sums(database, index, one.answer.sums)
    text = as_text(record(result) | {"variants": variants})
    trace_database.put_meta(database, {"result": text})


def _result(text: str, sums: Mapping[int, tuple[PartialSums, ...]]) -> whatif.WhatIf:
    record = decoded(text, _Fields)
    variants = []
    for index, values in enumerate(decoded(record["variants"], list[_Fields])):
        with naming(f"variant {index + 1} of the result"):
            stored = decoded(values["answer"], _Fields)
            if len(decoded(stored["rows"], list[msgspec.Raw])) > WIDEST:
                raise ValueError(f"it has more than {WIDEST} rows, which are one for each width")
            accumulator = Accumulator.from_plain(decoded(stored["accumulator"], dict[str, Any]))
            own = sums.get(index, ())
            answer = _built(whatif.Answer, stored, accumulator=accumulator, sums=own)
            variant = _built(whatif.Variant, values, answer=answer)
            _check_variant(variant)
            variants.append(variant)
    if "energy" not in record and "priced" in record:  # its name in format 2
        record["energy"] = record["priced"]
    settings = trace_database.read_settings(record["settings"])
    result = _built(whatif.WhatIf, record, variants=tuple(variants), settings=settings)
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
        file = trace_database.open_to_write(path, WHAT_IF)
        with closing(file.database), trace_database.name_damage(path, WHAT_IF.noun, WHAT_IF.hint):
            meta = trace_database.meta_of(file)
            is_what_if = meta.get("kind") == WHAT_IF.kind and int(meta["format"]) <= FORMAT
            return decoded(meta["identity"], dict[str, str]) if is_what_if else None
    except InUseError:
        raise
    except InputError:  # no trace, or a damaged one
        return None


def _check_variant(variant: whatif.Variant) -> None:
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
    widths = {*bits, whatif.REFERENCE_BITS, answer.observed, *variant.pinned.bits.values()}
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


_SUFFIX = ".shards"
_TABLE = """CREATE TABLE IF NOT EXISTS shards (variant TEXT NOT NULL, first INTEGER NOT NULL,
    count INTEGER NOT NULL, question TEXT NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (variant, first, count, question))"""
SIZE, BASELINE = "size", "baseline"
"""Questions beside those of evaluations: batches of a shard, and its run in wide accumulators."""
EVERY = Shard(0, 0)
"""Stands for all shards, in the row of their size: others could not use the results."""


def evaluation_of(widths: whatif.Widths, counted: bool) -> str:
    """Returns the question for an evaluation."""
    return f"{'counted' if counted else 'scored'} {','.join(map(str, widths))}"


class ShardFile:
    """The file beside the trace at `path`, for shards that depend on what `identity` names.

    A file of something else, and a damaged one, is begun anew, as any is with `force`. Raises
    InputError where it cannot be written.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], force: bool = False) -> None:
        self.path = path.with_name(path.name + _SUFFIX)
        key = msgspec.json.encode({**identity, "code": version()}, order="sorted").decode()
        known = None
        with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(self.path)) as database:
            (known,) = database.execute("SELECT key FROM about").fetchone() or (None,)
        try:
            if force or known != key:
                self.path.unlink(missing_ok=True)
            self.database = sqlite3.connect(self.path)
            with self.database:
                self.database.execute("PRAGMA synchronous = OFF")  # a lost row is computed again
                self.database.execute(_TABLE)
                self.database.execute("CREATE TABLE IF NOT EXISTS about (key TEXT)")
                self.database.execute("DELETE FROM about")
                self.database.execute("INSERT INTO about VALUES (?)", (key,))
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"{self.path}: cannot be written ({error})") from error

    @property
    def count(self) -> int:
        """The number of results."""
        (count,) = self.database.execute("SELECT COUNT(*) FROM shards").fetchone()
        return int(count)

    def close(self) -> None:
        """Closes the file, which a further run reads."""
        self.database.close()

    def remove(self) -> None:
        """Removes the file: the trace has the result."""
        self.close()
        self.path.unlink(missing_ok=True)


class KeptShards:
    """The results of one variant in a file; without a file, nothing is kept.

    Nor is the result of an only shard, which is not worth a file.
    """

    def __init__(self, file: ShardFile | None = None, variant: str = "") -> None:
        self._file = file
        self._variant = variant

    def read(self, shard: Shard, question: str, kind: type[R]) -> R | None:
        """Returns a result; None where it is not kept or damaged, and is computed again."""
        if self._file is None or shard.count is None:
            return None
        with contextlib.suppress(*trace_database.MALFORMED):
            row = self._file.database.execute(
                "SELECT record FROM shards WHERE (variant, first, count, question) = (?, ?, ?, ?)",
                (self._variant, shard.first, shard.count, question),
            ).fetchone()
            if row is None:
                return None
            both = tuple[kind, list[tuple[str, bytes]]]  # type: ignore[valid-type]
            part, records = msgspec.msgpack.decode(row[0], type=both, dec_hook=_unpack)
            cells = trace_database.StoredFile(self._file.database, self._file.path.stat().st_size)
            sums = [trace_file.load_sums(text, cells.arrays(arrays)) for text, arrays in records]
            if isinstance(part, whatif.ShardBaseline):
                part = replace(part, sums={each.node: each for each in sums})
            result: R = part
            return result
        return None

    def keep(self, shard: Shard, question: str, result: object) -> None:
        """Stores a result. Raises InputError where the disk is full."""
        if self._file is None or shard.count is None:
            return
        sums: Iterable[PartialSums] = ()
        if isinstance(result, whatif.ShardBaseline):  # partial sums are stored as in a trace
            result, sums = replace(result, sums={}), result.sums.values()
        both = result, [trace_file.dump_sums(each) for each in sums]
        record = msgspec.msgpack.encode(
            both, enc_hook=lambda each: (each.dtype.str, each.shape, each.tobytes())
        )
        values = self._variant, shard.first, shard.count, question, record
        try:
            with self._file.database as database:
                database.execute("INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?)", values)
        except sqlite3.Error as error:
            raise InputError(f"{self._file.path}: cannot be written ({error})") from error


def _unpack(_: type, packed: tuple[str, tuple[int, ...], bytes]) -> Array:
    dtype, shape, numbers = packed
    return np.frombuffer(numbers, dtype).reshape(shape).copy()
