"""A Trace as one SQLite file: what was measured, raw, so that any view can be made of it later."""

from __future__ import annotations

import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from pandas.errors import DatabaseError

from tracer.errors import InputError, UsageError
from tracer.records.columns import COLUMNS
from tracer.records.environment import Environment
from tracer.records.node_table import typed
from tracer.records.trace import Kernel, ModelInfo, PartialSums, Run, Trace
from tracer.storage import partial_sums

FORMAT = 3
"""Raised when a file of this version could not be read by the code before it."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (
    position INTEGER PRIMARY KEY, executor TEXT NOT NULL, batch INTEGER, inputs TEXT NOT NULL,
    notes TEXT NOT NULL, wall_us BLOB NOT NULL, instrumented_us BLOB NOT NULL,
    tick_us REAL NOT NULL, empty_us BLOB
);
CREATE TABLE kernels (
    run INTEGER REFERENCES runs, position INTEGER, record TEXT NOT NULL, bias_us REAL NOT NULL,
    bias_error_us REAL, replayed_us REAL, samples BLOB NOT NULL, PRIMARY KEY (run, position)
);
CREATE TABLE sums (
    run INTEGER REFERENCES runs, position INTEGER, record TEXT NOT NULL, arrays BLOB NOT NULL,
    PRIMARY KEY (run, position)
);
"""


def dumps(trace: Trace) -> bytes:
    """The bytes of the SQLite file that holds `trace`."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_SCHEMA)
        database.executemany("INSERT INTO meta VALUES (?, ?)", _meta(trace))
        for position, run in enumerate(trace.runs):
            _insert_run(database, position, run)
        trace.nodes.to_sql("nodes", database, index=False)
        database.commit()
        return database.serialize()


def load(path: str | Path) -> Trace:
    """Read a saved trace. Raises InputError for a file that is not one."""
    path = Path(path)
    try:
        if not path.is_file():
            raise InputError(
                f"{path}: no such trace", "Make one with: tracer profile -o FILE.trace."
            )
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            return _read(database, path)
    except (
        # SQLite's own words, pandas' (an OSError), and cells that are not what the schema says
        sqlite3.Error, DatabaseError, msgspec.MsgspecError, zlib.error, zipfile.BadZipFile,
        KeyError, TypeError, ValueError, OverflowError, UsageError,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path}: not a trace, or a damaged one ({error})",
            "Make one with: tracer profile -o FILE.trace.",
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _meta(trace: Trace) -> Iterator[tuple[str, str]]:
    yield "format", str(FORMAT)
    for key in ("model", "environment", "settings", "notes"):
        yield key, msgspec.json.encode(getattr(trace, key)).decode()
    dtypes = {name: str(dtype) for name, dtype in trace.nodes.dtypes.items()}
    yield "counts", msgspec.json.encode(_counts(trace)).decode()
    yield "dtypes", msgspec.json.encode(dtypes).decode()


def _counts(trace: Trace) -> dict[str, Any]:
    """How many rows the tables hold: SQLite does not notice when one is gone."""
    return {
        "kernels": [len(run.kernels) for run in trace.runs],
        "sums": [len(run.sums) for run in trace.runs],
        "nodes": len(trace.nodes),
    }


def _insert_run(database: sqlite3.Connection, position: int, run: Run) -> None:
    database.execute(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            position,
            run.executor,
            run.batch,
            msgspec.json.encode(run.inputs).decode(),
            msgspec.json.encode(run.notes).decode(),
            _pack(run.wall_us),
            _pack(run.instrumented_us),
            run.tick_us,
            None if run.empty_us is None else _pack(run.empty_us),
        ),
    )
    for column, kernel in enumerate(run.kernels):
        record = msgspec.json.encode(kernel).decode()
        figures = (run.bias_us, run.bias_error_us, run.replayed_us)
        told = [None if each is None else float(each[column]) for each in figures]
        row = (position, column, record, *told, _pack(run.samples[:, column]))
        database.execute("INSERT INTO kernels VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    for place, sums in enumerate(run.sums):
        _insert_sums(database, position, place, sums)


def _insert_sums(database: sqlite3.Connection, run: int, place: int, sums: PartialSums) -> None:
    row = (run, place, *partial_sums.dumped(sums))
    database.execute("INSERT INTO sums VALUES (?, ?, ?, ?)", row)


def _read(database: sqlite3.Connection, path: Path) -> Trace:
    (soundness,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if soundness != "ok":
        raise ValueError(soundness)
    meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
    if "kind" in meta:
        raise InputError(
            f"{path}: holds a {meta['kind']}, not the trace of a run", "tracer report renders it."
        )
    if int(meta["format"]) > FORMAT:
        raise InputError(
            f"{path}: written by a newer tracer", "Upgrade: pip install -U tracer-onnx."
        )
    if int(meta["format"]) < FORMAT:
        raise InputError(f"{path}: written by an older tracer", "Measure again.")
    runs = tuple(
        _read_run(database, *row)
        for row in database.execute("SELECT * FROM runs ORDER BY position").fetchall()
    )
    trace = Trace(
        model=msgspec.json.decode(meta["model"], type=ModelInfo),
        environment=msgspec.json.decode(meta["environment"], type=Environment),
        settings=msgspec.json.decode(meta["settings"], type=dict[str, Any]),
        runs=runs,
        nodes=_read_nodes(database, msgspec.json.decode(meta["dtypes"], type=dict[str, str])),
        notes=msgspec.json.decode(meta["notes"], type=tuple[str, ...]),
    )
    if _counts(trace) != msgspec.json.decode(meta["counts"]):
        raise ValueError("rows are missing")
    return trace


def _read_run(
    database: sqlite3.Connection,
    position: int,
    executor: str,
    batch: int | None,
    inputs: str,
    notes: str,
    wall_us: bytes,
    instrumented_us: bytes,
    tick_us: float,
    empty_us: bytes | None,
) -> Run:
    rows = database.execute(
        "SELECT record, bias_us, bias_error_us, replayed_us, samples FROM kernels WHERE run = ? "
        "ORDER BY position",
        (position,),
    ).fetchall()
    instrumented = _unpack(instrumented_us)
    columns = [_unpack(samples) for *_, samples in rows]
    if any(len(column) != len(instrumented) for column in columns):
        raise ValueError(f"run {position} has not a sample of each kernel for each inference")
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
        sums=_read_sums(database, position),
        bias_error_us=_known([row[2] for row in rows]),
        tick_us=tick_us,
        empty_us=None if empty_us is None else _unpack(empty_us),
        replayed_us=_known([row[3] for row in rows]),
    )


def _known(values: list[float | None]) -> np.ndarray[Any, Any] | None:
    """None where no kernel has the figure; SQLite keeps NaN as a missing value."""
    found = np.array(values, np.float64)
    return None if np.isnan(found).all() else found


def _read_sums(database: sqlite3.Connection, run: int) -> tuple[PartialSums, ...]:
    rows = database.execute(
        "SELECT record, arrays FROM sums WHERE run = ? ORDER BY position", (run,)
    ).fetchall()
    return tuple(partial_sums.loaded(*row) for row in rows)


def _read_nodes(database: sqlite3.Connection, dtypes: dict[str, str]) -> pd.DataFrame:
    nodes = pd.read_sql("SELECT * FROM nodes", database).astype(dtypes)
    return typed(nodes.reindex(columns=list(COLUMNS)))  # an older file may have fewer


def _pack(values: np.ndarray[Any, Any]) -> bytes:
    return zlib.compress(values.astype("<f8").tobytes(), level=1)


def _unpack(blob: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(zlib.decompress(blob), "<f8").astype(np.float64)
