"""Looks up bytes in tables of bytes."""

from typing import Any

import numpy as np
from numba import types

from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels.argument_types import read_only, vector_type

_BYTES = read_only(types.uint8)
_TABLE = read_only(types.uint8, 2)


@entry(
    lambda table, x, out: len(table) == 256 and x.size == out.size and x.size % table.shape[1] == 0,
    types.void(_TABLE, _BYTES, vector_type(types.uint8)),
)
def by_column(table: Any, x: Any, out: Any) -> None:
    """Writes `table[x[i], i % width]`; `x` is whole rows of a table (256, width)."""
    width, entries = table.shape[1], table.reshape(table.size)
    if width == 1:
        for i in range(x.size):
            out[i] = entries[np.uintp(x[i])]
        return
    for row in range(0, x.size, width):
        for column in range(width):
            place = np.uintp(row + column)
            entry = np.uintp(x[place]) * np.uintp(width) + np.uintp(column)
            out[place] = entries[entry]


@entry(lambda table, x, other, out: table.shape == (256, 256) and x.size == other.size == out.size,
    types.void(_TABLE, _BYTES, _BYTES, vector_type(types.uint8)))  # fmt: skip
def by_pair(table: Any, x: Any, other: Any, out: Any) -> None:
    """Writes `table[x[i], other[i]]`, with a table (256, 256)."""
    entries = table.reshape(table.size)
    for i in range(x.size):
        out[i] = entries[(np.uintp(x[i]) << np.uintp(8)) | np.uintp(other[i])]
