"""Writes the statistics of samples to a .trace file, and reads them."""

import io
import sqlite3

import msgspec
import numpy as np

from tracer.accumulators.statistics.sample_sums import SampleSums
from tracer.errors import InputError
from tracer.storage.stored_file import StoredFile, decoded, typed_row


class _Row(msgspec.Struct, array_like=True):
    run: int
    nodes: str
    arrays: bytes


def put(database: sqlite3.Connection, run: int, samples: SampleSums | None) -> None:
    """Inserts the statistics of a run, if it has them."""
    if samples is None:
        return
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **samples.arrays())
    row = (run, msgspec.json.encode(samples.nodes).decode(), stream.getvalue())
    database.execute("INSERT INTO samples VALUES (?, ?, ?)", row)


def by_run(file: StoredFile) -> dict[int, SampleSums]:
    """Returns the statistics by run. Raises ValueError for malformed ones."""
    tables = file.database.execute("SELECT name FROM sqlite_master WHERE name = 'samples'")
    if not tables.fetchall():  # older files lack the table
        return {}

    def build(cells: object) -> tuple[int, SampleSums]:
        row = typed_row(_Row)(cells)
        return row.run, _loaded(decoded(row.nodes, tuple[str, ...]), file, row.arrays)

    return dict(file.rows("samples", build, "SELECT run, nodes, arrays FROM samples"))


def _loaded(nodes: tuple[str, ...], file: StoredFile, blob: bytes) -> SampleSums:
    try:
        samples = SampleSums.from_arrays(nodes, file.arrays(blob))
    except InputError as error:  # the reader of the file adds its name
        raise ValueError(error.what) from error
    if not ((samples.worst_node >= -1) & (samples.worst_node < len(nodes))).all():
        raise ValueError("a sample names a node that there is not")
    return samples
