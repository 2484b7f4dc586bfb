"""Batches of a data set, prepared once and read again from disk: memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tracer.inputs.datasets import Batch, Dataset
from tracer.support.types import Array
from tracer.whatif.spill import Spill

ROOM = 8 << 30
"""Bytes of disk; data that need more are prepared again in every pass."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch whose arrays are read when they are asked for; see `datasets.Batch`."""

    size: int
    _spill: Spill = field(repr=False)
    _number: int
    _names: tuple[str, ...]
    _labelled: bool

    @property
    def inputs(self) -> Mapping[str, Array]:
        """Arrays by input name."""
        return dict(zip(self._names, self._spill.read(self._number), strict=False))

    @property
    def labels(self) -> Array | None:
        """Labels of the samples, where the data set has any."""
        return self._spill.read(self._number)[-1] if self._labelled else None


Fed: TypeAlias = "Stored | Batch"


class Batches:
    """The batches of `dataset`, `size` samples each, as often as they are asked for."""

    def __init__(self, dataset: Dataset, size: int, room: int = ROOM) -> None:
        self._dataset = dataset
        self._size = size
        self._left = room
        self._stored: list[Stored] | None = None

    def __call__(self) -> Iterator[Fed]:
        """All of them, from the first one on."""
        return iter(self._stored) if self._stored is not None else self._prepared()

    def _prepared(self) -> Iterator[Fed]:
        """The batches of the data set; stored on the way, if all of them can be."""
        spill, stored, fits = Spill(), list[Stored](), True
        for batch in self._dataset.batches(self._size):
            fits = fits and self._fits(batch)
            if fits:
                stored.append(_put(spill, len(stored), batch))
            yield batch
        self._stored = stored if fits else None

    def _fits(self, batch: Batch) -> bool:
        """Whether a batch is of plain arrays, and there is room for it."""
        arrays: list[Any] = [*batch.inputs.values()]
        arrays += [] if batch.labels is None else [batch.labels]
        if not all(isinstance(array, np.ndarray) and not array.dtype.hasobject for array in arrays):
            return False
        self._left -= sum(array.nbytes for array in arrays)
        return self._left >= 0


def _put(spill: Spill, number: int, batch: Batch) -> Stored:
    labels = [] if batch.labels is None else [batch.labels]
    spill.append([*batch.inputs.values(), *labels])
    return Stored(batch.size, spill, number, tuple(batch.inputs), bool(labels))
