"""Statistics of sums in a .trace file, as JSON and .npz bytes: of integers, floats and samples."""

import io
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics import float_partial_sums
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums, FloatTally
from tracer.accumulators.statistics.partial_sums import PartialSums, SampleSums, Tally
from tracer.errors import InputError
from tracer.storage.trace_database import StoredFile, as_text, decoded, typed_row
from tracer.support.types import Array

T = TypeVar("T")

_BY_CHANNEL = ("guaranteed_channels", "guaranteed_inner_channels")
"""Arrays of widths, beside those of the tally."""
_MOST_BITS = 1_000
"""Sums of 64-bit products over any tensor need fewer bits."""
_HISTOGRAM = "error_histogram"
_MOST = 1 << 62
"""Most sums or terms: nobody computes as many."""
_LONGEST = 200
"""Letters of a spelling, which views show."""

_Bits: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST_BITS)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Spelling: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]


class _Row(msgspec.Struct, array_like=True):
    run: int
    position: int
    record: str
    arrays: bytes


class _SamplesRow(msgspec.Struct, array_like=True):
    run: int
    nodes: str
    arrays: bytes


class _SumsRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of `PartialSums` that are no arrays."""

    node: str
    accumulator: dict[str, int | str | None]
    guaranteed: _Bits | None
    guaranteed_any_order: _Bits | None
    datatype: _Bits | None
    guaranteed_inner: _Bits | None = None


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


def put_sums(
    database: sqlite3.Connection,
    run: int,
    sums: Sequence[PartialSums],
    floats: Sequence[FloatPartialSums] = (),
    samples: SampleSums | None = None,
) -> None:
    """Inserts the statistics of a run or a variant, in their order."""
    for table, cells in (("sums", map(dump_sums, sums)), ("float_sums", map(_dump_floats, floats))):
        rows = [(run, index, *each) for index, each in enumerate(cells)]
        if rows:  # what-ifs of earlier formats lack the table of floats, and are continued
            database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", rows)  # noqa: S608
    if samples is not None:
        row = (run, as_text(samples.nodes), _npz(samples.arrays()))
        database.execute("INSERT INTO samples VALUES (?, ?, ?)", row)


def sums_by_run(file: StoredFile) -> dict[int, tuple[PartialSums, ...]]:
    """All partial sums, by run or variant (a column that format 2 called `variant`)."""
    return _by_run(file, "sums", load_sums)


def floats_by_run(file: StoredFile) -> dict[int, tuple[FloatPartialSums, ...]]:
    """Returns the statistics by run. Raises ValueError for malformed ones."""
    return _by_run(file, "float_sums", _load_floats) if file.has("float_sums") else {}


def samples_by_run(file: StoredFile) -> dict[int, SampleSums]:
    """Returns the statistics by run. Raises ValueError for malformed ones."""

    def build(cells: object) -> tuple[int, SampleSums]:
        row = typed_row(_SamplesRow)(cells)
        nodes = decoded(row.nodes, tuple[str, ...])
        try:
            samples = SampleSums.from_arrays(nodes, file.arrays(row.arrays))
        except InputError as error:  # the reader of the file adds its name
            raise ValueError(error.what) from error
        if not ((samples.worst_node >= -1) & (samples.worst_node < len(nodes))).all():
            raise ValueError("a sample names a node that there is not")
        return row.run, samples

    if not file.has("samples"):
        return {}
    return dict(file.rows("samples", build, "SELECT run, nodes, arrays FROM samples"))


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
    widths = {name: getattr(sums, name) for name in _BY_CHANNEL}
    known = {name: bits for name, bits in widths.items() if bits is not None}
    return as_text(record), _npz(sums.tally.arrays() | known)


def load_sums(text: str, arrays: Mapping[str, Array]) -> PartialSums:
    """The inverse of `dump_sums`. Raises ValueError, TypeError or KeyError for malformed data."""
    fields: dict[str, Any] = msgspec.structs.asdict(decoded(text, _SumsRecord))
    accumulator = Accumulator.from_plain(fields.pop("accumulator"))
    quantities = {name: array for name, array in arrays.items() if name not in _BY_CHANNEL}
    try:
        tally = Tally.from_arrays(quantities, accumulator)
    except InputError as error:  # the reader of the file adds its name
        raise ValueError(error.what) from error
    widths = {name: arrays[name] for name in _BY_CHANNEL if name in arrays}
    shape = tally.outputs.shape
    if not len(tally.outputs) or any(bits.shape != shape for bits in widths.values()):
        raise ValueError("the statistics have no channels, or widths of other channels")
    return PartialSums(tally=tally, **(fields | widths))


def _dump_floats(sums: FloatPartialSums) -> tuple[str, bytes]:
    tally = sums.tally
    record = _FloatRecord(
        node=sums.node,
        accumulator=tally.accumulator,
        operands=tally.operands,
        greatest_error=tally.greatest_error if math.isfinite(tally.greatest_error) else None,
        **tally.counts(),
    )
    return as_text(record), _npz({_HISTOGRAM: tally.error_histogram})


def _load_floats(text: str, arrays: Mapping[str, Array]) -> FloatPartialSums:
    """Raises ValueError, KeyError or MsgspecError for malformed data."""
    record = decoded(text, _FloatRecord)
    histogram = arrays[_HISTOGRAM]
    if histogram.shape != (float_partial_sums.ERROR_BINS,) or (histogram < 0).any():
        raise ValueError(f"{_HISTOGRAM} has other bins than errors have")
    # Python's integers: sums of numbers near 2^63 must not wrap
    if sum(histogram.tolist()) + record.nan_outputs != record.outputs:
        raise ValueError(f"{_HISTOGRAM} counts another number of outputs")
    if record.overflow_outputs > record.outputs or record.swamped > record.terms:
        raise ValueError("a part is greater than the whole")
    fields = msgspec.structs.asdict(record)
    node = fields.pop("node")
    if fields["greatest_error"] is None:
        fields["greatest_error"] = math.inf
    return FloatPartialSums(node, FloatTally(**fields, error_histogram=histogram))


def _by_run(
    file: StoredFile, table: str, load: Callable[[str, Mapping[str, Array]], T]
) -> dict[int, tuple[T, ...]]:
    """Returns what `load` makes of the record and the arrays of each row, in order."""

    def build(cells: object) -> tuple[int, T]:
        row = typed_row(_Row)(cells)
        return row.run, load(row.record, file.arrays(row.arrays))

    sums: dict[int, list[T]] = {}
    for run, each in file.rows(table, build, f"SELECT * FROM {table} ORDER BY 1, 2"):  # noqa: S608
        sums.setdefault(run, []).append(each)
    return {run: tuple(each) for run, each in sums.items()}


def _npz(arrays: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return stream.getvalue()
