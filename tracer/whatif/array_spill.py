"""Arrays in a temporary file, so that memory use does not grow with the data."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from tracer.support.temporary import naming_folder, unnamed_file
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class _Location:
    """Where an array lies in the file; `offset` in bytes."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class ArraySpill:
    """Numbered groups of arrays, in a temporary file that is deleted with this object.

    Several threads may read and append. Raises InputError if the disk is full.
    """

    def __init__(self) -> None:
        self._file = unnamed_file()
        self._groups: list[list[_Location]] = []
        self._lock = Lock()

    def append(self, arrays: Sequence[Array]) -> int:
        """Appends a group, and returns its number. Raises ValueError for Python objects."""
        with self._lock, naming_folder():
            self._file.seek(0, 2)
            self._groups.append([self._write(np.asarray(array)) for array in arrays])
            self._file.flush()
            return len(self._groups) - 1

    def read(self, number: int) -> list[Array]:
        """Returns the arrays of a group."""
        return [self._read(location) for location in self._groups[number]]

    def _write(self, array: Array) -> _Location:
        if array.dtype.hasobject:
            raise ValueError("arrays of Python objects cannot be stored")
        location = _Location(self._file.tell(), array.dtype, array.shape)
        self._file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return location

    def _read(self, location: _Location) -> Array:
        array = np.empty(location.shape, location.dtype)
        with self._lock:
            self._file.seek(location.offset)
            self._file.readinto(array.reshape(-1).view(np.uint8).data)
        return array
