"""Arrays put aside on disk, so that memory does not grow with the data."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

import numpy as np

from tracer.interpreter.values import Array


class Spill:
    """Groups of arrays by number, in a temporary file that goes away with it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tracer-")  # noqa: SIM115 - lives as long as self
        self._places: list[tuple[int, int]] = []

    def append(self, arrays: Sequence[Array]) -> None:
        """Put a group after the others."""
        self._places.append((self._file.seek(0, 2), len(arrays)))
        for array in arrays:
            np.save(self._file, array, allow_pickle=False)

    def read(self, number: int) -> list[Array]:
        """A group again."""
        place, count = self._places[number]
        self._file.seek(place)
        return [np.load(self._file, allow_pickle=False) for _ in range(count)]
