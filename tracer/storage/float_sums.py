"""Writes the statistics of float accumulators to a .trace file, and reads them."""

import io
import math
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from tracer.accumulators.statistics import error_bins
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums
from tracer.accumulators.statistics.float_tally import FloatTally
from tracer.storage.stored_file import StoredFile, decoded, typed_row
from tracer.support.types import Array

_HISTOGRAM = "error_histogram"
_MOST = 1 << 62
"""Most sums or terms: nobody computes as many."""
_LONGEST = 200
"""Letters of a spelling, which views show."""

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Spelling: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]


class _Row(msgspec.Struct, array_like=True):
    run: int
    record: str
    arrays: bytes


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a node's sums that are no arrays; `greatest_error` is None for infinity."""

    node: str
    accumulator: _Spelling
    operands: _Spelling | None
    outputs: _Count
    overflow_outputs: _Count
    nan_outputs: _Count
    terms: _Count
    swamped: _Count
    greatest_error: Annotated[float, msgspec.Meta(ge=0)] | None


def put(database: sqlite3.Connection, run: int, sums: Sequence[FloatPartialSums]) -> None:
    """Inserts the statistics of a run, in their order."""
    rows = ((run, index, *_dumped(each)) for index, each in enumerate(sums))
    database.executemany("INSERT INTO float_sums VALUES (?, ?, ?, ?)", rows)


def by_run(file: StoredFile) -> dict[int, tuple[FloatPartialSums, ...]]:
    """Returns the statistics by run. Raises ValueError for malformed ones."""
    tables = file.database.execute("SELECT name FROM sqlite_master WHERE name = 'float_sums'")
    if not tables.fetchall():  # older files lack the table
        return {}

    def build(cells: object) -> tuple[int, FloatPartialSums]:
        row = typed_row(_Row)(cells)
        return row.run, _loaded(row.record, file.arrays(row.arrays))

    sums: dict[int, list[FloatPartialSums]] = {}
    query = "SELECT run, record, arrays FROM float_sums ORDER BY run, position"
    for run, each in file.rows("float_sums", build, query):
        sums.setdefault(run, []).append(each)
    return {run: tuple(each) for run, each in sums.items()}


def _dumped(sums: FloatPartialSums) -> tuple[str, bytes]:
    tally = sums.tally
    greatest = tally.greatest_error if math.isfinite(tally.greatest_error) else None
    record = _Record(
        node=sums.node,
        accumulator=tally.accumulator,
        operands=tally.operands,
        greatest_error=greatest,
        **tally.counts(),
    )
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **{_HISTOGRAM: tally.error_histogram})
    return msgspec.json.encode(record).decode(), stream.getvalue()


def _loaded(text: str, arrays: Mapping[str, Array]) -> FloatPartialSums:
    """The inverse of `_dumped`. Raises ValueError, KeyError or MsgspecError for malformed data."""
    record = decoded(text, _Record)
    histogram = arrays[_HISTOGRAM]
    if histogram.shape != (error_bins.COUNT,) or (histogram < 0).any():
        raise ValueError(f"{_HISTOGRAM} has other bins than errors have")
    # Python's integers: sums of numbers near 2^63 must not wrap
    if sum(histogram.tolist()) + record.nan_outputs != record.outputs:
        raise ValueError(f"{_HISTOGRAM} counts another number of outputs")
    if record.overflow_outputs > record.outputs or record.swamped > record.terms:
        raise ValueError("a part is greater than the whole")
    fields = {name: getattr(record, name) for name in _Record.__struct_fields__}
    node, greatest = fields.pop("node"), fields.pop("greatest_error")
    tally = FloatTally(
        **fields,
        greatest_error=math.inf if greatest is None else greatest,
        error_histogram=histogram,
    )
    return FloatPartialSums(node, tally)
