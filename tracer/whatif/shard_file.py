"""Results of shards in a file beside the trace, until the trace has the result.

A what-if that was killed loses the shards in progress alone: what others told is read again, where
nothing that it depends on has changed. The file holds numbers and names, and nothing that runs.
"""

import contextlib
import sqlite3
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from tracer.accumulators.engine.sum_runner import Counts
from tracer.errors import InputError
from tracer.records.whatif import Widths
from tracer.scaling.shards import Shard
from tracer.scaling.worker import version
from tracer.storage import stored_sums
from tracer.storage.stored_file import MALFORMED, StoredFile
from tracer.whatif.criteria import WideBatch
from tracer.whatif.shard_runs import ShardBaseline, ShardEvaluation


class KeptShards:
    """Keeps nothing: what a what-if without a file uses."""

    def size(self) -> int | None:
        """Returns how many batches a shard has; None where nothing is kept."""
        return None

    def keep_size(self, size: int) -> None:
        """Keeps how many batches a shard has: other shards could not use the results."""

    def baseline(self, shard: Shard) -> ShardBaseline | None:
        """Returns the run of a shard in wide accumulators; None where it is not kept."""
        return None

    def keep_baseline(self, shard: Shard, result: ShardBaseline) -> None:
        """Keeps the run of a shard in wide accumulators."""

    def evaluation(self, shard: Shard, widths: Widths, counted: bool) -> ShardEvaluation | None:
        """Returns the run of a shard at these widths; None where it is not kept."""
        return None

    def keep_evaluation(
        self, shard: Shard, widths: Widths, counted: bool, result: ShardEvaluation
    ) -> None:
        """Keeps the run of a shard at these widths."""


R = TypeVar("R")

_SUFFIX = ".shards"
_TABLE = """CREATE TABLE IF NOT EXISTS shards (variant TEXT NOT NULL, first INTEGER NOT NULL,
    count INTEGER NOT NULL, question TEXT NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (variant, first, count, question))"""
_SIZE, _BASELINE = "size", "baseline"
_WHOLE = Shard(0, 0)
"""Stands for all shards, in the row of their size."""


class _Batch(msgspec.Struct):
    scores: list[float]
    leads: list[float]
    classes: list[int]
    counts: list[int]
    squares: list[tuple[str, int, list[float]]]


class _Baseline(msgspec.Struct):
    widths: dict[str, int]
    steps: list[int]
    batches: list[_Batch]
    needed: list[list[int]]
    altered: list[list[tuple[int, int]]]
    sums: list[tuple[str, bytes]]
    notes: tuple[str, ...]
    seconds: float


class _Evaluation(msgspec.Struct):
    scores: dict[int, list[float]]
    starts: dict[int, int]
    counts: dict[str, tuple[int, int, int, int, int]]


class ShardFile:
    """The file beside the trace at `path`, for shards that depend on what `identity` names.

    A file of something else, and a damaged one, is begun anew, as any is with `force`. Raises
    InputError where it cannot be written.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], force: bool = False) -> None:
        self.path = path.with_name(path.name + _SUFFIX)
        key = msgspec.json.encode({**identity, "code": version()}, order="sorted").decode()
        try:
            if force or _key(self.path) != key:
                self.path.unlink(missing_ok=True)
            self._database = sqlite3.connect(self.path)
            with self._database:
                self._database.execute("PRAGMA synchronous = OFF")  # a lost row is computed again
                self._database.execute(_TABLE)
                self._database.execute("CREATE TABLE IF NOT EXISTS about (key TEXT)")
                self._database.execute("DELETE FROM about")
                self._database.execute("INSERT INTO about VALUES (?)", (key,))
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"{self.path}: cannot be written ({error})") from error

    def of(self, variant: str) -> KeptShards:
        """Returns the results of one variant."""
        return _FiledShards(self, variant)

    @property
    def count(self) -> int:
        """The number of results."""
        (count,) = self._database.execute("SELECT COUNT(*) FROM shards").fetchone()
        return int(count)

    def read(self, variant: str, shard: Shard, question: str) -> bytes | None:
        """Returns a stored result; None where there is none."""
        row = self._database.execute(
            "SELECT record FROM shards WHERE (variant, first, count, question) = (?, ?, ?, ?)",
            (variant, shard.first, shard.count, question),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def write(self, variant: str, shard: Shard, question: str, record: object) -> None:
        """Stores a result. Raises InputError where the disk is full."""
        values = variant, shard.first, shard.count, question, msgspec.msgpack.encode(record)
        try:
            with self._database:
                self._database.execute("INSERT OR REPLACE INTO shards VALUES (?,?,?,?,?)", values)
        except sqlite3.Error as error:
            raise InputError(f"{self.path}: cannot be written ({error})") from error

    def unpacked(self, record: _Baseline) -> ShardBaseline:
        """Returns the baseline of a record. Raises one of MALFORMED for a damaged one."""
        nodes = len(record.widths)
        file = StoredFile(self._database, self.path.stat().st_size)
        sums = [stored_sums.load_sums(text, file.arrays(arrays)) for text, arrays in record.sums]
        return ShardBaseline(
            record.widths,
            np.array(record.steps, np.int64),
            tuple(map(_batch, record.batches)),
            np.array(record.needed, np.int64).reshape(-1, nodes),
            np.array(record.altered, np.int64).reshape(-1, nodes, 2),
            {each.node: each for each in sums},
            record.notes,
            record.seconds,
        )

    def close(self) -> None:
        """Closes the file, which a further run reads."""
        self._database.close()

    def remove(self) -> None:
        """Removes the file: the trace has the result."""
        self.close()
        self.path.unlink(missing_ok=True)


class _FiledShards(KeptShards):
    """The rows of one variant."""

    def __init__(self, file: ShardFile, variant: str) -> None:
        self._file = file
        self._variant = variant

    def size(self) -> int | None:
        return self._read(_WHOLE, _SIZE, int)

    def keep_size(self, size: int) -> None:
        self._file.write(self._variant, _WHOLE, _SIZE, size)

    def baseline(self, shard: Shard) -> ShardBaseline | None:
        record = self._read(shard, _BASELINE, _Baseline)
        with contextlib.suppress(*MALFORMED):  # then it is computed again
            return None if record is None else self._file.unpacked(record)
        return None

    def keep_baseline(self, shard: Shard, result: ShardBaseline) -> None:
        record = _Baseline(
            dict(result.widths), result.steps.tolist(), [*map(_batch_record, result.batches)],
            result.needed.tolist(), result.altered.tolist(),
            [stored_sums.dump_sums(each) for each in result.sums.values()],
            result.notes, result.seconds,
        )  # fmt: skip
        self._write(shard, _BASELINE, record)

    def evaluation(self, shard: Shard, widths: Widths, counted: bool) -> ShardEvaluation | None:
        record = self._read(shard, _question(widths, counted), _Evaluation)
        if record is None:
            return None
        return ShardEvaluation(
            {number: np.array(scores) for number, scores in record.scores.items()},
            record.starts,
            {node: Counts(*counts) for node, counts in record.counts.items()},
        )

    def keep_evaluation(
        self, shard: Shard, widths: Widths, counted: bool, result: ShardEvaluation
    ) -> None:
        record = _Evaluation(
            {number: scores.tolist() for number, scores in result.scores.items()},
            dict(result.starts),
            {node: astuple(counts) for node, counts in result.counts.items()},
        )
        self._write(shard, _question(widths, counted), record)

    def _read(self, shard: Shard, question: str, kind: type[R]) -> R | None:
        if shard.count is None:
            return None
        with contextlib.suppress(*MALFORMED):  # then it is computed again
            data = self._file.read(self._variant, shard, question)
            return None if data is None else msgspec.msgpack.decode(data, type=kind)
        return None

    def _write(self, shard: Shard, question: str, record: msgspec.Struct) -> None:
        if shard.count is not None:  # the only shard, which is not worth a file
            self._file.write(self._variant, shard, question, record)


def _question(widths: Widths, counted: bool) -> str:
    return f"{'counted' if counted else 'scored'} {','.join(map(str, widths))}"


def _batch_record(batch: WideBatch) -> _Batch:
    squares = [(name, axis, sums.tolist()) for (name, axis), sums in batch.squares.items()]
    classes, counts = batch.classes
    return _Batch(
        batch.scores.tolist(), batch.leads.tolist(), classes.tolist(), counts.tolist(), squares
    )


def _batch(record: _Batch) -> WideBatch:
    return WideBatch(
        np.array(record.scores, np.float64),
        np.array(record.leads, np.float64),
        (np.array(record.classes, np.int64), np.array(record.counts, np.int64)),
        {(name, axis): np.array(sums, np.float64) for name, axis, sums in record.squares},
    )


def _key(path: Path) -> str | None:
    """What the shards in a file depend on; None where it is no such file."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as database:
        row = database.execute("SELECT key FROM about").fetchone()
        return None if row is None else str(row[0])
    return None
