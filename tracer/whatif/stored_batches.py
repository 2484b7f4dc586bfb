"""Batches of a data set, prepared in the first pass and read from a temporary file in later ones.

Memory use does not grow with the data.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset
from tracer.support.progress import Progress, silent
from tracer.support.types import Array
from tracer.whatif.array_spill import ArraySpill

DISK_BYTES = 8 << 30
"""Data sets that need more are prepared again in every pass."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch whose arrays are read from disk on access; see `datasets.Batch`."""

    size: int
    _spill: ArraySpill = field(repr=False)
    _number: int
    _names: tuple[str, ...]
    _labelled: bool

    @property
    def inputs(self) -> Mapping[str, Array]:
        """Arrays by input name."""
        return dict(zip(self._names, self._spill.read(self._number), strict=False))

    @property
    def labels(self) -> Array | None:
        """Labels of the samples, where the data set has labels."""
        return self._spill.read(self._number)[-1] if self._labelled else None


AnyBatch: TypeAlias = StoredBatch | Batch


class StoredBatches:
    """The batches of `dataset`, `size` samples each; each call is a pass over all of them.

    A pass reports progress after each batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        size: int,
        progress: Progress | None = None,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        self._dataset = dataset
        self._size = size
        self._progress = progress or silent
        self._free_bytes = disk_bytes
        self._stored: list[StoredBatch] | None = None

    def __call__(self) -> Iterator[AnyBatch]:
        """Yields all batches, from the first one on."""
        count = self._dataset.count(self._size) or 0
        batches = self._prepared() if self._stored is None else iter(self._stored)
        for done, batch in enumerate(batches, 1):
            yield batch
            self._progress(done, count, "batches")

    def _prepared(self) -> Iterator[AnyBatch]:
        """Yields the batches of the data set, and stores them while all fit."""
        spill, stored, fits = ArraySpill(), list[StoredBatch](), True
        for batch in self._dataset.batches(self._size):
            fits = fits and self._fits(batch)
            if fits:
                stored.append(_stored(spill, len(stored), batch))
            yield batch
        self._stored = stored if fits else None

    def _fits(self, batch: Batch) -> bool:
        """Whether a batch consists of plain arrays for which there is disk space."""
        arrays: list[Any] = [*batch.inputs.values()]
        arrays += [] if batch.labels is None else [batch.labels]
        if not all(isinstance(array, np.ndarray) and not array.dtype.hasobject for array in arrays):
            return False
        self._free_bytes -= sum(array.nbytes for array in arrays)
        return self._free_bytes >= 0


def _stored(spill: ArraySpill, number: int, batch: Batch) -> StoredBatch:
    labels = [] if batch.labels is None else [batch.labels]
    spill.append([*batch.inputs.values(), *labels])
    return StoredBatch(batch.size, spill, number, tuple(batch.inputs), bool(labels))
