"""Arrays put aside on disk, so that memory does not grow with the data."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an array lies in the file."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int


class Spill:
    """Groups of arrays by number, in a temporary file that goes away with it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tracer-")  # noqa: SIM115 - lives as long as self
        self._groups: list[list[_Place]] = []
        self._lock = Lock()

    def append(self, arrays: Sequence[Array]) -> None:
        """Put a group after the others. Raises ValueError for arrays of Python objects."""
        with self._lock:
            self._file.seek(0, 2)
            self._groups.append([self._put(np.asarray(array)) for array in arrays])

    def read(self, number: int) -> list[Array]:
        """A group again; several threads may read at a time."""
        return [self._get(place) for place in self._groups[number]]

    def _put(self, array: Array) -> _Place:
        if array.dtype.hasobject:
            raise ValueError("Python objects have no bytes of their own")
        place = _Place(self._file.tell(), array.dtype, array.shape, array.nbytes)
        self._file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return place

    def _get(self, place: _Place) -> Array:
        raw = np.empty(place.nbytes, np.uint8)
        with self._lock:
            self._file.seek(place.offset)
            self._file.readinto(raw.data)
        return raw.view(place.dtype).reshape(place.shape)
