"""Statistics of sums in a .trace file, as JSON and .npz bytes: of integers, floats and samples."""

import io
import math
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics import bins
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums, FloatTally
from tracer.accumulators.statistics.partial_sums import PartialSums, Tally
from tracer.accumulators.statistics.sample_sums import SampleSums
from tracer.errors import InputError
from tracer.storage.stored_file import StoredFile, decoded, typed_row
from tracer.support.types import Array

_BY_CHANNEL = ("guaranteed_channels", "guaranteed_inner_channels")
"""Arrays of widths, beside those of the tally."""
_MOST_BITS = 1_000
"""Sums of 64-bit products over any tensor need fewer bits."""
_Bits: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST_BITS)]
_Property: TypeAlias = int | str | None


class _SumsRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of partial sums that are no arrays."""

    node: str
    accumulator: dict[str, _Property]
    guaranteed: _Bits | None
    guaranteed_any_order: _Bits | None
    datatype: _Bits | None
    guaranteed_inner: _Bits | None = None


def dump_sums(sums: PartialSums) -> tuple[str, bytes]:
    """JSON of the scalar fields, and an .npz of the arrays."""
    record = _SumsRecord(
        node=sums.node,
        accumulator=sums.tally.accumulator.to_plain(),
        guaranteed=sums.guaranteed,
        guaranteed_any_order=sums.guaranteed_any_order,
        datatype=sums.datatype,
        guaranteed_inner=sums.guaranteed_inner,
    )
    arrays = sums.tally.arrays()
    widths = {name: getattr(sums, name) for name in _BY_CHANNEL}
    arrays |= {name: bits for name, bits in widths.items() if bits is not None}
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return msgspec.json.encode(record).decode(), stream.getvalue()


def load_sums(text: str, arrays: Mapping[str, Array]) -> PartialSums:
    """The inverse of `dump_sums`. Raises ValueError, TypeError or KeyError for malformed data."""
    record = decoded(text, _SumsRecord)
    accumulator = Accumulator.from_plain(record.accumulator)
    quantities = {name: array for name, array in arrays.items() if name not in _BY_CHANNEL}
    try:
        tally = Tally.from_arrays(quantities, accumulator)
    except InputError as error:  # the reader of the file adds its name
        raise ValueError(error.what) from error
    widths = {name: arrays[name] for name in _BY_CHANNEL if name in arrays}
    shape = tally.outputs.shape
    if not len(tally.outputs) or any(bits.shape != shape for bits in widths.values()):
        raise ValueError("the statistics have no channels, or widths of other channels")
    return PartialSums(
        node=record.node,
        tally=tally,
        guaranteed=record.guaranteed,
        guaranteed_any_order=record.guaranteed_any_order,
        datatype=record.datatype,
        guaranteed_inner=record.guaranteed_inner,
        **widths,
    )


_HISTOGRAM = "error_histogram"
_MOST = 1 << 62
"""Most sums or terms: nobody computes as many."""
_LONGEST = 200
"""Letters of a spelling, which views show."""
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Spelling: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]


class _FloatRow(msgspec.Struct, array_like=True):
    run: int
    record: str
    arrays: bytes


class _FloatRecord(msgspec.Struct, forbid_unknown_fields=True):
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


def put_floats(database: sqlite3.Connection, run: int, sums: Sequence[FloatPartialSums]) -> None:
    """Inserts the statistics of a run, in their order."""
    rows = ((run, index, *_dump_floats(each)) for index, each in enumerate(sums))
    database.executemany("INSERT INTO float_sums VALUES (?, ?, ?, ?)", rows)


def floats_by_run(file: StoredFile) -> dict[int, tuple[FloatPartialSums, ...]]:
    """Returns the statistics by run. Raises ValueError for malformed ones."""
    tables = file.database.execute("SELECT name FROM sqlite_master WHERE name = 'float_sums'")
    if not tables.fetchall():  # older files lack the table
        return {}

    def build(cells: object) -> tuple[int, FloatPartialSums]:
        row = typed_row(_FloatRow)(cells)
        return row.run, _load_floats(row.record, file.arrays(row.arrays))

    sums: dict[int, list[FloatPartialSums]] = {}
    query = "SELECT run, record, arrays FROM float_sums ORDER BY run, position"
    for run, each in file.rows("float_sums", build, query):
        sums.setdefault(run, []).append(each)
    return {run: tuple(each) for run, each in sums.items()}


def _dump_floats(sums: FloatPartialSums) -> tuple[str, bytes]:
    tally = sums.tally
    greatest = tally.greatest_error if math.isfinite(tally.greatest_error) else None
    record = _FloatRecord(
        node=sums.node,
        accumulator=tally.accumulator,
        operands=tally.operands,
        greatest_error=greatest,
        **tally.counts(),
    )
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **{_HISTOGRAM: tally.error_histogram})
    return msgspec.json.encode(record).decode(), stream.getvalue()


def _load_floats(text: str, arrays: Mapping[str, Array]) -> FloatPartialSums:
    """Raises ValueError, KeyError or MsgspecError for malformed data."""
    record = decoded(text, _FloatRecord)
    histogram = arrays[_HISTOGRAM]
    if histogram.shape != (bins.ERROR_BINS,) or (histogram < 0).any():
        raise ValueError(f"{_HISTOGRAM} has other bins than errors have")
    # Python's integers: sums of numbers near 2^63 must not wrap
    if sum(histogram.tolist()) + record.nan_outputs != record.outputs:
        raise ValueError(f"{_HISTOGRAM} counts another number of outputs")
    if record.overflow_outputs > record.outputs or record.swamped > record.terms:
        raise ValueError("a part is greater than the whole")
    fields = {name: getattr(record, name) for name in _FloatRecord.__struct_fields__}
    node, greatest = fields.pop("node"), fields.pop("greatest_error")
    tally = FloatTally(
        **fields,
        greatest_error=math.inf if greatest is None else greatest,
        error_histogram=histogram,
    )
    return FloatPartialSums(node, tally)


class _SamplesRow(msgspec.Struct, array_like=True):
    run: int
    nodes: str
    arrays: bytes


def put_samples(database: sqlite3.Connection, run: int, samples: SampleSums | None) -> None:
    """Inserts the statistics of a run, if it has them."""
    if samples is None:
        return
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **samples.arrays())
    row = (run, msgspec.json.encode(samples.nodes).decode(), stream.getvalue())
    database.execute("INSERT INTO samples VALUES (?, ?, ?)", row)


def samples_by_run(file: StoredFile) -> dict[int, SampleSums]:
    """Returns the statistics by run. Raises ValueError for malformed ones."""
    tables = file.database.execute("SELECT name FROM sqlite_master WHERE name = 'samples'")
    if not tables.fetchall():  # older files lack the table
        return {}

    def build(cells: object) -> tuple[int, SampleSums]:
        row = typed_row(_SamplesRow)(cells)
        return row.run, _load_samples(decoded(row.nodes, tuple[str, ...]), file, row.arrays)

    return dict(file.rows("samples", build, "SELECT run, nodes, arrays FROM samples"))


def _load_samples(nodes: tuple[str, ...], file: StoredFile, blob: bytes) -> SampleSums:
    try:
        samples = SampleSums.from_arrays(nodes, file.arrays(blob))
    except InputError as error:  # the reader of the file adds its name
        raise ValueError(error.what) from error
    if not ((samples.worst_node >= -1) & (samples.worst_node < len(nodes))).all():
        raise ValueError("a sample names a node that there is not")
    return samples
