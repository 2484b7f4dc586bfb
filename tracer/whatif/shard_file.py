"""Results of shards in a file beside the trace, until the trace has the result.

A what-if that was killed loses the shards in progress alone: what others told is read again, where
nothing that it depends on has changed. The file holds numbers and names, and nothing that runs.
"""

import contextlib
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from tracer.errors import InputError
from tracer.records.whatif import Widths
from tracer.scaling.shards import Shard
from tracer.scaling.worker import version
from tracer.storage import stored_sums
from tracer.storage.stored_file import MALFORMED, StoredFile
from tracer.support.types import Array
from tracer.whatif.shard_runs import ShardBaseline

R = TypeVar("R")

_SUFFIX = ".shards"
_TABLE = """CREATE TABLE IF NOT EXISTS shards (variant TEXT NOT NULL, first INTEGER NOT NULL,
    count INTEGER NOT NULL, question TEXT NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (variant, first, count, question))"""
SIZE, BASELINE = "size", "baseline"
"""Questions beside those of evaluations: batches of a shard, and its run in wide accumulators."""
EVERY = Shard(0, 0)
"""Stands for all shards, in the row of their size: others could not use the results."""


def evaluation_of(widths: Widths, counted: bool) -> str:
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
        try:
            if force or _key(self.path) != key:
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
        with contextlib.suppress(*MALFORMED):
            row = self._file.database.execute(
                "SELECT record FROM shards WHERE (variant, first, count, question) = (?, ?, ?, ?)",
                (self._variant, shard.first, shard.count, question),
            ).fetchone()
            return None if row is None else _unpacked(self._file, bytes(row[0]), kind)
        return None

    def keep(self, shard: Shard, question: str, result: object) -> None:
        """Stores a result. Raises InputError where the disk is full."""
        if self._file is None or shard.count is None:
            return
        values = self._variant, shard.first, shard.count, question, _packed(result)
        try:
            with self._file.database as database:
                database.execute("INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?)", values)
        except sqlite3.Error as error:
            raise InputError(f"{self._file.path}: cannot be written ({error})") from error


def _packed(result: object) -> bytes:
    """Returns MessagePack of a record; partial sums are stored as in a trace."""

    def pack(array: Array) -> tuple[str, tuple[int, ...], bytes]:
        return array.dtype.str, array.shape, array.tobytes()

    if isinstance(result, ShardBaseline):
        sums = [stored_sums.dump_sums(each) for each in result.sums.values()]
        result = (replace(result, sums={}), sums)
    return msgspec.msgpack.encode(result, enc_hook=pack)


def _unpacked(file: ShardFile, data: bytes, kind: type[R]) -> Any:
    """The inverse of `_packed`. Raises one of MALFORMED for a damaged record."""

    def unpack(_: type, packed: tuple[str, tuple[int, ...], bytes]) -> Array:
        dtype, shape, numbers = packed
        return np.frombuffer(numbers, dtype).reshape(shape).copy()

    if not issubclass(kind, ShardBaseline):
        return msgspec.msgpack.decode(data, type=kind, dec_hook=unpack)
    both = tuple[ShardBaseline, list[tuple[str, bytes]]]
    part, records = msgspec.msgpack.decode(data, type=both, dec_hook=unpack)
    cells = StoredFile(file.database, file.path.stat().st_size)
    sums = [stored_sums.load_sums(text, cells.arrays(arrays)) for text, arrays in records]
    return replace(part, sums={each.node: each for each in sums})


def _key(path: Path) -> str | None:
    """What the shards in a file depend on; None where it is no such file."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as database:
        row = database.execute("SELECT key FROM about").fetchone()
        return None if row is None else str(row[0])
    return None
