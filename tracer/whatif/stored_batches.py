"""Batches of a data set, prepared once and then read from a temporary file.

Memory use does not grow with the data.
"""

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from tracer.graph.model import Model
from tracer.graph.stored_weights import findable
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.description import Description
from tracer.inputs.datasets.opening import reopened
from tracer.scaling.shards import Shard
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

    A pass reports progress after each batch. Pickled, it is the description of the data: a process
    that reads it twice gets the same object, and prepares the data once.
    """

    def __init__(
        self,
        dataset: Dataset,
        size: int,
        progress: Progress | None = None,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        self.dataset = dataset
        self._size = size
        self._progress = progress or silent
        self._free_bytes = disk_bytes
        self._spill = ArraySpill()
        self._stored: dict[int, StoredBatch] = {}
        self.count = dataset.count(size)
        """The number of batches; None until a pass has told it, where only reading tells."""

    def __call__(self) -> Iterator[AnyBatch]:
        """Yields all batches, from the first one on."""
        count = self.count or 0
        for done, batch in enumerate(self.shard(Shard()), 1):
            yield batch
            self._progress(done, count, "batches")

    def shard(self, shard: Shard) -> Iterator[AnyBatch]:
        """Yields the batches of a shard."""
        count = self.count if shard.count is None else shard.count
        numbers = range(shard.first, shard.first + (count or 0))
        if numbers and all(number in self._stored for number in numbers):
            yield from (self._stored[number] for number in numbers)
            return
        number = shard.first
        for number, batch in enumerate(self._read(shard), shard.first):
            if number not in self._stored and self._fits(batch):
                self._stored[number] = _stored(self._spill, batch)
            yield batch
        if shard.count is None:
            self.count = number + 1

    def _read(self, shard: Shard) -> Iterator[Batch]:
        size = self.dataset.layout.batch or self._size
        if shard.count is None:
            return self.dataset.batches(self._size)
        return self.dataset.part(shard.first * size, shard.count * size).batches(self._size)

    def _fits(self, batch: Batch) -> bool:
        """Whether a batch consists of plain arrays for which there is disk space."""
        arrays: list[Any] = [*batch.inputs.values()]
        arrays += [] if batch.labels is None else [batch.labels]
        if not all(isinstance(array, np.ndarray) and not array.dtype.hasobject for array in arrays):
            return False
        nbytes = sum(array.nbytes for array in arrays)
        if nbytes > self._free_bytes:
            return False
        self._free_bytes -= nbytes
        return True

    def __reduce__(self) -> tuple[Callable[..., "StoredBatches"], tuple[Description, Model, int]]:
        return _shared, (self.dataset.description, findable(self.dataset.model), self._size)


def _shared(description: Description, model: Model, size: int) -> StoredBatches:
    key = hashlib.sha256(pickle.dumps((description, model.sha256, size))).hexdigest()
    batches = _SHARED.get(key)
    if batches is None:
        batches = _SHARED[key] = StoredBatches(reopened(description, model), size)
    return batches


_SHARED: WeakValueDictionary[str, StoredBatches] = WeakValueDictionary()
"""What was read from pickles in this process, and is in use, by the hash of its description."""


def _stored(spill: ArraySpill, batch: Batch) -> StoredBatch:
    labels = [] if batch.labels is None else [batch.labels]
    number = spill.append([*batch.inputs.values(), *labels])
    return StoredBatch(batch.size, spill, number, tuple(batch.inputs), bool(labels))
