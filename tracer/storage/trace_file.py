"""Reads and writes a Trace as an SQLite file; raw samples let any view render it later."""

import io
import math
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
import pandas as pd

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics import float_partial_sums
from tracer.accumulators.statistics.partial_sums import PartialSums, SampleSums, Tally
from tracer.errors import InputError
from tracer.records.columns import ColumnSpec, stored_spec
from tracer.records.counted_runs import MachineUse, Usage
from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo
from tracer.records.trace import Generation, Kernel, Run, Trace, typed_table
from tracer.storage import trace_database
from tracer.storage.trace_database import LONGEST_US, TRACE, StoredFile, as_text, decoded, typed_row
from tracer.support.types import Array, FloatArray

T = TypeVar("T")

_BY_CHANNEL = ("guaranteed_channels", "guaranteed_inner_channels")
"""Arrays of widths, beside those of the tally."""
_MOST_BITS = 1_000
"""Sums of 64-bit products over any tensor need fewer bits."""
_HISTOGRAM = "error_histogram"
_MOST_SUMS = 1 << 62
"""Most sums or terms: nobody computes as many."""
_LONGEST = 200
"""Letters of a spelling, which views show."""

_Bits: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST_BITS)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST_SUMS)]
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
    floats: Sequence[float_partial_sums.FloatPartialSums] = (),
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


def _dump_floats(sums: float_partial_sums.FloatPartialSums) -> tuple[str, bytes]:
    tally = sums.tally
    record = _FloatRecord(
        node=sums.node,
        accumulator=tally.accumulator,
        operands=tally.operands,
        greatest_error=tally.greatest_error if math.isfinite(tally.greatest_error) else None,
        **tally.counts(),
    )
    return as_text(record), _npz({_HISTOGRAM: tally.error_histogram})


def _load_floats(text: str, arrays: Mapping[str, Array]) -> float_partial_sums.FloatPartialSums:
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
    return float_partial_sums.FloatPartialSums(
        node, float_partial_sums.FloatTally(**fields, error_histogram=histogram)
    )


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


_LEAST_US = 1e-6
"""Least mean time of a run, µs: shorter ones are no times, and ratios to them are not finite."""
_CONFIGURED, _PHASED, _LOADED = 4, 5, 6
"""The first formats whose runs have their own threads and optimisation level, a phase, and the
load of the machine."""
_UNKNOWN = -1.0
"""The share of the processors that others used, where the system does not tell."""
_MOST = 1e100
"""Greatest number of a row: sums and squares of larger ones are not finite."""
_Time: TypeAlias = Annotated[float, msgspec.Meta(ge=-LONGEST_US, le=LONGEST_US)]


class _RunRow(msgspec.Struct, array_like=True):
    position: int
    executor: str
    batch: Annotated[int, msgspec.Meta(ge=1)] | None
    inputs: str
    notes: str
    wall_us: bytes
    instrumented_us: bytes
    tick_us: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_US)]
    empty_us: bytes | None
    threads: Annotated[int, msgspec.Meta(ge=0)] | None
    optimization: str | None
    phase: Literal["prefill", "decode"] | None
    past: Annotated[int, msgspec.Meta(ge=0)] | None
    returning_us: _Time | None
    use: bytes | None


class _KernelRow(msgspec.Struct, array_like=True):
    record: str
    bias_us: _Time
    bias_error_us: _Time | None
    replayed_us: _Time | None
    samples: bytes


def dumps(trace: Trace) -> bytes:
    """Returns the bytes of the SQLite file that holds `trace`."""
    keys = ("model", "environment", "settings", "notes", "generation")
    records = {key: getattr(trace, key) for key in keys}
    records["counts"] = _counts(trace)
    records["dtypes"] = {name: str(dtype) for name, dtype in trace.nodes.dtypes.items()}
    with closing(sqlite3.connect(":memory:")) as database:
        trace_database.create(database)
        trace_database.put_meta(database, {k: as_text(record) for k, record in records.items()})
        for position, run in enumerate(trace.runs):
            _insert_run(database, position, run)
        trace.nodes.to_sql("nodes", database, index=False)
        database.commit()
        return database.serialize()


def load(path: str | Path) -> Trace:
    """Reads a saved trace. Raises InputError for a file that is not one."""
    with trace_database.reading(Path(path), TRACE) as (file, meta):
        settings = trace_database.record(meta, "settings", trace_database.read_settings)
        version = trace_database.record(meta, "format", int)
        # the cells that runs and rows of older files lack: the same for all of a trace
        lacking: dict[str, Any] = {}
        if version < _CONFIGURED:
            lacking["threads"] = settings.get("threads") or None
            lacking["optimization"] = settings.get("optimization")
        if version < _PHASED:
            lacking |= {"phase": None, "past": None}
        runs = _runs(file, (*lacking.values(), *((None, None) if version < _LOADED else ())))
        dtypes = _record(meta, "dtypes", dict[str, str])
        measured = meta.get("generation", "null") != "null"  # older files lack it
        trace = Trace(
            model=_record(meta, "model", ModelInfo),
            environment=_record(meta, "environment", Environment),
            settings=settings,
            runs=runs,
            nodes=read_nodes(file, dtypes, lacking if runs else {}),
            notes=_record(meta, "notes", tuple[str, ...]),
            generation=_record(meta, "generation", Generation) if measured else None,
        )
        before = {"float_sums": [0] * len(runs)}  # of files that lack the table
        counts = before | _record(meta, "counts", dict[str, Any])
        for table, count in _counts(trace).items():
            if counts.get(table) != count:
                raise ValueError(f"table {table}: rows are missing")
        return trace


def _record(meta: Mapping[str, str], key: str, kind: type[T]) -> T:
    return trace_database.record(meta, key, lambda text: decoded(text, kind))


def _counts(trace: Trace) -> dict[str, Any]:
    """Row counts of the tables: SQLite does not detect missing rows."""
    return {
        "kernels": [len(run.kernels) for run in trace.runs],
        "sums": [len(run.sums) for run in trace.runs],
        "float_sums": [len(run.float_sums) for run in trace.runs],
        "nodes": len(trace.nodes),
    }


def _insert_run(database: sqlite3.Connection, position: int, run: Run) -> None:
    """Inserts a run, its kernels and its sums: a cell for each field of `_RunRow`."""
    cells = {name: getattr(run, name) for name in _RunRow.__struct_fields__[1:]} | {
        "inputs": as_text(run.inputs),
        "notes": as_text(run.notes),
        "wall_us": _pack(run.wall_us),
        "instrumented_us": _pack(run.instrumented_us),
        "empty_us": None if run.empty_us is None else _pack(run.empty_us),
        "returning_us": None if math.isnan(run.returning_us) else run.returning_us,
    }
    if run.use is not None:  # the share of others, processors, and what each run used
        uses = (run.use.wall, run.use.profiled)
        parts = [part for usage in uses for part in (usage.switches, usage.cpu_us)]
        others = _UNKNOWN if run.use.others is None else run.use.others
        cells["use"] = _pack(np.concatenate([[others, run.use.processors], *parts]))
    marks = ", ".join("?" * (1 + len(cells)))
    database.execute(f"INSERT INTO runs VALUES ({marks})", (position, *cells.values()))  # noqa: S608
    for column, kernel in enumerate(run.kernels):
        times = (run.bias_us, run.bias_error_us, run.replayed_us)
        known = [None if each is None else float(each[column]) for each in times]
        row = (position, column, as_text(kernel), *known, _pack(run.samples[:, column]))
        database.execute("INSERT INTO kernels VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    put_sums(database, position, run.sums, run.float_sums, run.sums_by_sample)


def _runs(file: StoredFile, lacking: tuple[object, ...]) -> tuple[Run, ...]:
    """Returns the runs; `lacking` are the last cells, of columns that the file does not have."""
    sums = sums_by_run(file)
    floats = _by_run(file, "float_sums", _load_floats) if file.has("float_sums") else {}
    samples = samples_by_run(file)

    def build(cells: tuple[object, ...]) -> Run:
        fields = msgspec.structs.asdict(typed_row(_RunRow)((*cells, *lacking)))
        position = fields.pop("position")
        wall, instrumented = file.times(fields["wall_us"]), file.times(fields["instrumented_us"])
        kernels = _kernels(file, position, len(instrumented))
        if not len(wall) or wall.min() < 0 or wall.mean() < _LEAST_US:
            raise ValueError("wall_us holds no time, or one below 0")
        use, returning = fields["use"], fields["returning_us"]
        empty = None if fields["empty_us"] is None else file.times(fields["empty_us"])
        if empty is not None and not len(empty):
            raise ValueError("empty_us holds no time")
        fields |= {
            "inputs": decoded(fields["inputs"], dict[str, str]),
            "notes": decoded(fields["notes"], tuple[str, ...]),
            "wall_us": wall,
            "instrumented_us": instrumented,
            "empty_us": empty,
            "returning_us": math.nan if returning is None else returning,
            "use": None if use is None else _use(file, use, len(wall), len(instrumented)),
        }
        return Run(
            **fields,
            **kernels,
            sums=sums.get(position, ()),
            float_sums=floats.get(position, ()),
            sums_by_sample=samples.get(position),
        )

    return tuple(file.rows("runs", build, "SELECT * FROM runs ORDER BY position"))


def _kernels(file: StoredFile, run: int, inferences: int) -> dict[str, Any]:
    """Returns the fields of a run that tell of its kernels; a time is missing for all or none."""

    def build(cells: object) -> tuple[_KernelRow, Kernel, FloatArray]:
        row = typed_row(_KernelRow)(cells)
        samples = file.times(row.samples, inferences)
        return row, decoded(row.record, Kernel), samples

    rows = file.rows(
        "kernels", build,
        "SELECT record, bias_us, bias_error_us, replayed_us, samples FROM kernels WHERE run = ? "
        "ORDER BY position", (run,),
    )  # fmt: skip

    def times(name: str) -> FloatArray | None:  # SQLite stores NaN as NULL
        array = np.array([getattr(row, name) for row, _, _ in rows], np.float64)
        return None if np.isnan(array).all() else array

    samples = [each for _, _, each in rows]
    return {
        "kernels": tuple(kernel for _, kernel, _ in rows),
        "samples": np.column_stack(samples) if samples else np.empty((inferences, 0)),
        "bias_us": np.array([row.bias_us for row, _, _ in rows]),
        "bias_error_us": times("bias_error_us"),
        "replayed_us": times("replayed_us"),
    }


def _use(file: StoredFile, blob: bytes, walls: int, profiled: int) -> MachineUse:
    cells = file.times(blob, 2 + 2 * (walls + profiled))
    (others, processors), *parts = np.split(cells, np.cumsum([2, walls, walls, profiled]))
    wall, recorded = Usage(parts[0], parts[1]), Usage(parts[2], parts[3])
    return MachineUse(
        wall, recorded, int(processors), None if others == _UNKNOWN else float(others)
    )


def _pack(values: FloatArray) -> bytes:
    return zlib.compress(values.astype("<f8").tobytes(), level=1)


_CELLS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "Int64": (int,),
    "Float64": (float, int),
    "float64": (float, int),
}
"""What SQLite returns for the cells of a column, by its type in pandas; None is a missing value."""


def read_nodes(
    file: StoredFile, dtypes: Mapping[str, str], lacking: Mapping[str, Any]
) -> pd.DataFrame:
    """Returns the node table; `lacking` are the cells of columns that older files lack.

    Columns that this version does not know are left out. Raises ValueError for a cell of another
    type, a node without a name, and columns that are not those of `dtypes`.
    """
    cursor = file.database.execute("SELECT * FROM nodes LIMIT 0")
    names = [column[0] for column in cursor.description]
    if set(names) != set(dtypes):
        raise ValueError("table nodes: it has other columns than were written")
    rows = file.rows("nodes", tuple, "SELECT * FROM nodes")
    columns = zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True)
    known = {name: (spec, cells) for name, cells in columns if (spec := stored_spec(name))}
    table = pd.DataFrame(
        {name: _column(name, spec, cells) for name, (spec, cells) in known.items()}
    )
    for name in ("node", "op_type"):
        if name not in table or table[name].isna().any():
            raise ValueError(f"table nodes: a row has no {name}")
    return typed_table(table.assign(**lacking))


def _column(name: str, spec: ColumnSpec, cells: Sequence[Any]) -> Any:
    allowed = {*_CELLS[spec.dtype], type(None)}
    if not allowed.issuperset(map(type, cells)):
        number = next(n for n, cell in enumerate(cells, 1) if type(cell) not in allowed)
        raise ValueError(f"table nodes, row {number}: {name} is of a wrong type")
    if spec.dtype != "string":
        most = LONGEST_US if name.startswith("time_us") else _MOST
        wrong = (n for n, cell in enumerate(cells, 1) if cell is not None and abs(cell) > most)
        if row := next(wrong, None):
            raise ValueError(f"table nodes, row {row}: {name} is infinite, or too large")
    if spec.dtype == "float64":
        return np.array(cells, np.float64)  # None becomes NaN
    return pd.array(cells, dtype=spec.dtype)
