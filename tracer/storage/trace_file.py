"""Reads and writes a Trace as an SQLite file; raw samples let any view render it later."""

import sqlite3
import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.records.columns import stored_spec
from tracer.records.environment import Environment
from tracer.records.node_table import typed
from tracer.records.trace import Kernel, ModelInfo, Run, Trace
from tracer.storage import sample_sums, trace_database
from tracer.storage.trace_database import TRACE, as_text
from tracer.support.types import FloatArray

_CONFIGURED = 4
"""The first format whose runs have their own threads and optimisation level."""


def dumps(trace: Trace) -> bytes:
    """Returns the bytes of the SQLite file that holds `trace`."""
    with closing(sqlite3.connect(":memory:")) as database:
        trace_database.create(database)
        trace_database.put_meta(database, _meta(trace))
        for position, run in enumerate(trace.runs):
            _insert_run(database, position, run)
        trace.nodes.to_sql("nodes", database, index=False)
        database.commit()
        return database.serialize()


def load(path: str | Path) -> Trace:
    """Reads a saved trace. Raises InputError for a file that is not one."""
    path = Path(path)
    with trace_database.reading(path, TRACE) as (database, meta):
        return _read(database, meta)


def _meta(trace: Trace) -> dict[str, str]:
    dtypes = {name: str(dtype) for name, dtype in trace.nodes.dtypes.items()}
    records = {key: getattr(trace, key) for key in ("model", "environment", "settings", "notes")}
    records |= {"counts": _counts(trace), "dtypes": dtypes}
    return {key: as_text(record) for key, record in records.items()}


def _counts(trace: Trace) -> dict[str, Any]:
    """Row counts of the tables: SQLite does not detect missing rows."""
    return {
        "kernels": [len(run.kernels) for run in trace.runs],
        "sums": [len(run.sums) for run in trace.runs],
        "nodes": len(trace.nodes),
    }


def _insert_run(database: sqlite3.Connection, position: int, run: Run) -> None:
    database.execute(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            position,
            run.executor,
            run.batch,
            as_text(run.inputs),
            as_text(run.notes),
            _pack(run.wall_us),
            _pack(run.instrumented_us),
            run.tick_us,
            None if run.empty_us is None else _pack(run.empty_us),
            run.threads,
            run.optimization,
        ),
    )
    for column, kernel in enumerate(run.kernels):
        times = (run.bias_us, run.bias_error_us, run.replayed_us)
        cells = [None if each is None else float(each[column]) for each in times]
        row = (position, column, as_text(kernel), *cells, _pack(run.samples[:, column]))
        database.execute("INSERT INTO kernels VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    trace_database.put_sums(database, position, run.sums)
    sample_sums.put(database, position, run.sums_by_sample)


def _read(database: sqlite3.Connection, meta: dict[str, str]) -> Trace:
    sums = trace_database.sums_by_run(database)
    samples = sample_sums.by_run(database)
    settings = msgspec.json.decode(meta["settings"], type=dict[str, Any])
    lacking = _lacking(settings) if int(meta["format"]) < _CONFIGURED else {}
    rows = database.execute("SELECT * FROM runs ORDER BY position").fetchall()
    runs = (_read_run(database, sums, (*row, *lacking.values())) for row in rows)
    dtypes = msgspec.json.decode(meta["dtypes"], type=dict[str, str])
    trace = Trace(
        model=msgspec.json.decode(meta["model"], type=ModelInfo),
        environment=msgspec.json.decode(meta["environment"], type=Environment),
        settings=settings,
        runs=tuple(
            replace(run, sums_by_sample=samples.get(position)) for position, run in enumerate(runs)
        ),
        nodes=_read_nodes(database, dtypes, lacking if rows else {}),
        notes=msgspec.json.decode(meta["notes"], type=tuple[str, ...]),
    )
    if _counts(trace) != msgspec.json.decode(meta["counts"]):
        raise ValueError("rows are missing")
    return trace


def _lacking(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the cells that runs and rows of older files lack: the same for all of a trace."""
    return {
        "threads": settings.get("threads") or None,
        "optimization": settings.get("optimization"),
    }


def _read_run(
    database: sqlite3.Connection, sums: Mapping[int, tuple[PartialSums, ...]], row: tuple[Any, ...]
) -> Run:
    position, executor, batch, inputs, notes, wall_us, instrumented_us, tick_us, *more = row
    empty_us, threads, optimization = more
    rows = database.execute(
        "SELECT record, bias_us, bias_error_us, replayed_us, samples FROM kernels WHERE run = ? "
        "ORDER BY position",
        (position,),
    ).fetchall()
    instrumented = _unpack(instrumented_us)
    columns = [_unpack(samples) for *_, samples in rows]
    if any(len(column) != len(instrumented) for column in columns):
        raise ValueError(f"run {position} lacks samples of a kernel")
    return Run(
        executor=executor,
        batch=batch,
        inputs=msgspec.json.decode(inputs, type=dict[str, str]),
        wall_us=_unpack(wall_us),
        instrumented_us=instrumented,
        samples=np.column_stack(columns) if columns else np.empty((len(instrumented), 0)),
        bias_us=np.array([row[1] for row in rows]),
        kernels=tuple(msgspec.json.decode(record, type=Kernel) for record, *_ in rows),
        notes=msgspec.json.decode(notes, type=tuple[str, ...]),
        sums=sums.get(position, ()),
        bias_error_us=_optional_array([row[2] for row in rows]),
        tick_us=tick_us,
        empty_us=None if empty_us is None else _unpack(empty_us),
        replayed_us=_optional_array([row[3] for row in rows]),
        threads=threads,
        optimization=optimization,
    )


def _optional_array(values: list[float | None]) -> FloatArray | None:
    """None where all values are missing; SQLite stores NaN as NULL."""
    array = np.array(values, np.float64)
    return None if np.isnan(array).all() else array


def _read_nodes(
    database: sqlite3.Connection, dtypes: dict[str, str], lacking: Mapping[str, Any]
) -> pd.DataFrame:
    nodes = pd.read_sql("SELECT * FROM nodes", database).astype(dtypes)
    nodes = nodes[[name for name in nodes.columns if stored_spec(name) is not None]]
    return typed(nodes.assign(**lacking))


def _pack(values: FloatArray) -> bytes:
    return zlib.compress(values.astype("<f8").tobytes(), level=1)


def _unpack(blob: bytes) -> FloatArray:
    return np.frombuffer(zlib.decompress(blob), "<f8").astype(np.float64)
