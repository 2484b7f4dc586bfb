"""Writes the statistics of samples to a .trace file, and reads them."""

import io
import sqlite3

import msgspec
import numpy as np

from tracer.accumulators.statistics.sample_sums import SampleSums
from tracer.errors import InputError


def put(database: sqlite3.Connection, run: int, samples: SampleSums | None) -> None:
    """Inserts the statistics of a run, if it has them."""
    if samples is None:
        return
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **samples.arrays())
    row = (run, msgspec.json.encode(samples.nodes).decode(), stream.getvalue())
    database.execute("INSERT INTO samples VALUES (?, ?, ?)", row)


def by_run(database: sqlite3.Connection) -> dict[int, SampleSums]:
    """Returns the statistics by run. Raises ValueError for malformed ones."""
    tables = database.execute("SELECT name FROM sqlite_master WHERE name = 'samples'").fetchall()
    rows = database.execute("SELECT run, nodes, arrays FROM samples").fetchall() if tables else []
    return {run: _loaded(nodes, blob) for run, nodes, blob in rows}


def _loaded(nodes: str, blob: bytes) -> SampleSums:
    with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    try:
        return SampleSums.from_arrays(msgspec.json.decode(nodes, type=tuple[str, ...]), arrays)
    except InputError as error:  # the reader of the file adds its name
        raise ValueError(error.what) from error
