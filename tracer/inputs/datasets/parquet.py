"""Reads samples from the rows of Parquet files: columns as inputs and labels, images as bytes."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tracer.errors import InputError, refusing
from tracer.graph.model import Model
from tracer.inputs.datasets import images
from tracer.inputs.datasets.batch import Fields, Sample, SampleReader, choose_fields, parts_from
from tracer.support.imports import require
from tracer.support.types import Array
from tracer.text import plural

_BUFFER = 1 << 20
"""Bytes of a column that are read at a time, instead of a whole row group."""
_DECODED = 64
"""Rows that are decoded at a time, at most: their images lie in memory undecoded as well."""
_FORM = (
    "A column has numbers, lists of them that are equally long, or images as the bytes of a PNG or "
    "JPEG file, alone or in a struct with `bytes`."
)


@dataclass(frozen=True, slots=True)
class ParquetRows(SampleReader):
    """The rows of `paths`, one file after another; `groups` are the rows of each row group."""

    paths: tuple[Path, ...]
    groups: tuple[tuple[int, ...], ...] = field(repr=False)
    fields: Fields

    @property
    def samples(self) -> int:
        """The rows of all files."""
        return sum(map(sum, self.groups))

    def read_samples(self, rows: int, first: int) -> Iterator[Sample]:
        """Yields rows from number `first` on; reads no row group before that of `first`."""
        rows = min(rows, _DECODED)
        files = zip(self.paths, self.groups, strict=True)
        groups = (((path, i), rows) for path, own in files for i, rows in enumerate(own))
        for (path, number), rest in parts_from(first, groups):
            with _opened(path) as file:
                for table in file.iter_batches(rows, [number], self.fields.names):
                    passed = min(rest, table.num_rows)
                    rest -= passed
                    part = table.slice(passed)
                    if part.num_rows:
                        yield from self._rows(path, part)

    def _rows(self, path: Path, table: Any) -> Iterator[Sample]:
        """Yields the rows of a pyarrow.RecordBatch."""
        columns = {
            name: self._column(f"{path}: column {own}", table.column(own), name)
            for name, own in self.fields.inputs.items()
        }
        label = self.fields.label
        labels = None if label is None else _array(f"{path}: column {label}", table.column(label))
        for row in range(table.num_rows):
            values = {name: column[row] for name, column in columns.items()}
            yield Sample(values, None if labels is None else np.asarray(labels[row]))

    def _column(self, where: str, column: Any, name: str) -> Sequence[Array] | Array:
        """Returns the value of the input `name` in each row: arrays, or pixels [C, H, W]."""
        import pyarrow as pa

        declared = self.fields.types[name]
        if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
            column = column.field("bytes")
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            values = _array(where, column)
            shape = () if declared is None else (declared.shape or ())[1:]
            fixed = [size for size in shape if isinstance(size, int)]
            is_flat = values.ndim == 2 and len(fixed) == len(shape)
            fits = is_flat and values.shape[1] == math.prod(fixed)
            return values.reshape(-1, *fixed) if fits else values
        if column.null_count:
            raise InputError(f"{where}: has no image in {plural(column.null_count, 'row')}", _FORM)
        files = (io.BytesIO(value.as_py()) for value in column)
        return [
            np.asarray(images.fit_declared(images.decoded(file, where), declared)[0])
            for file in files
        ]


def open_parquet(paths: Sequence[Path], model: Model) -> ParquetRows:
    """Returns the rows of Parquet files with the same columns.

    Raises UsageError where pyarrow is not installed, InputError for a file that is not Parquet or
    has no column for an input.
    """
    require("reading Parquet files", "pyarrow")
    groups, chosen = list[tuple[int, ...]](), None
    for path in paths:
        with _opened(path) as file:
            names = file.schema_arrow.names
            own = choose_fields(str(path), names, model)
            count = file.metadata.num_row_groups
            groups.append(tuple(file.metadata.row_group(i).num_rows for i in range(count)))
        chosen = chosen or own
        if (own.inputs, own.label) != (chosen.inputs, chosen.label):
            raise InputError(
                f"{path}: has the columns {', '.join(names)}, unlike {paths[0]}",
                "Name files with the same columns.",
            )
    assert chosen is not None
    return ParquetRows(tuple(paths), tuple(groups), chosen)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Opens a pyarrow.parquet.ParquetFile. Raises InputError, also while it is read."""
    from pyarrow import parquet

    broken = f"{path}: not a Parquet file that can be read"
    with (
        refusing(lambda why: InputError(f"{broken} ({why})")),
        parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file,
    ):
        yield file


def _array(where: str, column: Any) -> Array:
    """Returns numbers [rows], or those of lists [rows, length, ...]."""
    import pyarrow as pa

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    shape = [len(column)]
    if isinstance(column, pa.FixedShapeTensorArray):
        return np.asarray(column.to_numpy_ndarray())
    while any(is_kind(column.type) for is_kind in lists):
        flat = column.flatten()
        lengths = set(column.value_lengths().to_pylist()) if len(column) else {0}
        if column.null_count or len(lengths) != 1:
            raise InputError(f"{where}: lists of {len(lengths)} lengths, or none in a row", _FORM)
        shape.append(lengths.pop())
        column = flat
    if column.null_count or not any(is_kind(column.type) for is_kind in numbers):
        what = "rows without a value" if column.null_count else str(column.type)
        raise InputError(f"{where}: {what}", _FORM)
    return np.asarray(column.to_numpy(zero_copy_only=False)).reshape(shape)
