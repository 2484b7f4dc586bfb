"""What later runs of a what-if reuse, in bounded memory: batches, tensors and outputs.

`ArraySpill` holds arrays in a temporary file, `ArrayRoom` some in memory and others in files,
`StoredBatches` the prepared data, and `Checkpoints` tensors from which later runs continue.
"""

import hashlib
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedRandom
from threading import Lock
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from tracer.containment import memory
from tracer.containment.activity import Progress, silent
from tracer.graph.model import Model
from tracer.graph.stored_weights import findable, mapping_of
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset, Description
from tracer.inputs.datasets.opening import reopened
from tracer.interpreter import values
from tracer.quantization.calibration import value_bytes
from tracer.scaling.pool import Shard
from tracer.support.temporary import naming_folder, unnamed_file
from tracer.support.types import Array


class ArraySpill:
    """Numbered lists of arrays, in a temporary file that is deleted with this object.

    Several threads may read and append. Raises InputError if the disk is full.
    """

    def __init__(self) -> None:
        self._file = unnamed_file()
        self._places: list[int] = []
        self._lock = Lock()

    def append(self, arrays: Sequence[Array]) -> int:
        """Appends a list, and returns its number."""
        with self._lock, naming_folder():
            place = self._file.seek(0, 2)
            plain = [np.asarray(array, order="C") for array in arrays]
            pickle.dump(plain, self._file, pickle.HIGHEST_PROTOCOL)
            self._file.flush()
            self._places.append(place)
            return len(self._places) - 1

    def read(self, number: int) -> list[Array]:
        """Returns the arrays of a list."""
        with self._lock:
            self._file.seek(self._places[number])
            arrays: list[Array] = pickle.load(self._file)  # noqa: S301 - this process wrote it
        return arrays


_SHARE, _USUAL_BYTES = 2, 2 << 30
"""What arrays of a room are in memory: a half of the rest, or so many where that is not known."""
_FILE_BYTES = 1 << 30
"""Of a file of several arrays: each is open as long as one of its arrays is in use."""
_LEAST_BYTES = 1 << 12
"""Of an array in a file, which begins on a page of its own."""


class ArrayRoom:
    """Arrays of which the first fill half of the memory that is left; others are in mapped files.

    The files have no names, and go when their arrays do.
    """

    _file: BufferedRandom

    def __init__(self) -> None:
        rest = memory.room_bytes()
        rest = memory.free_bytes() if rest is None else rest
        self._left = _USUAL_BYTES if rest is None else rest // _SHARE
        self._mapped, self._end = np.empty(0, np.uint8), 0

    def keep(self, tensors: Sequence[values.Value]) -> list[values.Value]:
        """Returns the same values, equal objects once. Raises InputError if the disk is full."""
        kept = {key: self._keep(value) for key, value in {id(v): v for v in tensors}.items()}
        return [kept[id(value)] for value in tensors]

    def _keep(self, value: values.Value) -> values.Value:
        if not isinstance(value, np.ndarray) or mapping_of(value) is not None:
            return value
        self._left -= value.nbytes
        if self._left >= 0 or value.nbytes < _LEAST_BYTES or value.dtype.hasobject:
            return value
        with naming_folder():
            if self._end + value.nbytes > self._mapped.size:
                self._file, size = unnamed_file(), max(_FILE_BYTES, value.nbytes)
                self._file.truncate(size)
                self._mapped, self._end = np.memmap(self._file, np.uint8, "r+", shape=(size,)), 0
            self._file.seek(self._end)
            value.tofile(self._file)  # a full disk is an error here, and not a signal
        part = self._mapped[self._end : self._end + value.nbytes]
        self._end += -(-value.nbytes // _LEAST_BYTES) * _LEAST_BYTES
        return np.asarray(part).view(value.dtype).reshape(value.shape)


Alive = Mapping[str, values.Value]
"""Tensors by name that a step or a later one reads."""
Path = tuple[int, ...]
"""What a batch is computed in: the width of each narrow node, WIDE where no sum has left it yet."""
WIDE = 0
"""Stands for any width that holds all sums of a node, whose inputs are those of the wide run."""
_Place = tuple[int, int, Path]
"""A batch, a step, and the path as far as that step."""


class Checkpoints:
    """The tensors alive before some steps of some batches, at most `limit` bytes.

    They depend on the widths of the nodes before the step alone; `steps` has the step of each node.
    What is offered first is stored. Several threads may offer.
    """

    def __init__(self, limit: int, steps: Sequence[int]) -> None:
        self._steps = tuple(steps)
        self._limit = limit
        self._bytes = 0
        self._stored: dict[_Place, Alive] = {}
        self._uses: dict[int, int] = defaultdict(int)
        self._lock = Lock()

    def offer(self, batch: int, step: int, path: Path, alive: Alive) -> None:
        """Stores the tensors alive before `step` of `batch`, if they fit."""
        place = self._place(batch, step, path)
        with self._lock:
            new = {id(v): v for v in alive.values() if not self._uses.get(id(v))}
            size = sum(values.nbytes(value) for value in new.values())
            if self._bytes + size <= self._limit and place not in self._stored:
                self._stored[place] = alive
                self._bytes += size
                for value in alive.values():
                    self._uses[id(value)] += 1  # several steps and batches may share a tensor

    def latest(self, batch: int, step: int, path: Path) -> tuple[int, Alive] | None:
        """Returns the last stored step up to `step`, and the tensors alive before it."""
        for each in sorted({n for n in self._steps if n < step} | {step}, reverse=True):
            alive = self._stored.get(self._place(batch, each, path))
            if alive is not None:
                return each, alive
        return None

    def make_room(self, paths: Mapping[int, Path]) -> None:
        """Where half of the bytes are in use, drops what the paths of these batches do not reach.

        Checkpoints of other batches stay.
        """
        if self._bytes * 2 < self._limit:
            return
        for place in [*self._stored]:
            batch, step, _ = place
            if batch not in paths or place == self._place(batch, step, paths[batch]):
                continue
            for value in self._stored.pop(place).values():
                self._uses[id(value)] -= 1
                if not self._uses[id(value)]:
                    del self._uses[id(value)]
                    self._bytes -= values.nbytes(value)

    def _place(self, batch: int, step: int, path: Path) -> _Place:
        before = zip(path, self._steps, strict=True)
        return batch, step, tuple(width for width, own in before if own < step)


_USUAL_BATCH, _LARGEST_BATCH = 64, 256
_FEWEST_BATCHES = 16
"""So many can be shared among workers, and left out where nothing in them overflows."""
_TENSOR_BYTES = 8 << 20
"""Of the largest tensor of a batch: beyond it a pass hardly gains from larger batches."""


def usual_batch(dataset: Dataset) -> int:
    """Returns how many samples of a data set run at a time: more where these are many and small.

    The nodes of a small network take as long in Python as in their kernels. Raises the errors of
    `Dataset.batches` and of `shapes.infer`.
    """
    at_most = min((dataset.samples or 0) // _FEWEST_BATCHES, _LARGEST_BATCH)
    if at_most <= _USUAL_BATCH or dataset.layout.batch or not dataset.layout.rows:
        return _USUAL_BATCH
    of_two, of_one = value_bytes(dataset, 2), value_bytes(dataset, 1)
    grown = [more - less for more, less in zip(of_two, of_one, strict=True)]  # weights do not grow
    return max(_USUAL_BATCH, min(at_most, _TENSOR_BYTES // max(1, *grown)))


_DISK_BYTES = 8 << 30
"""Data sets that need more are prepared again in every pass."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch whose arrays are read from disk on access; see `datasets.Batch`."""

    size: int
    _spill: ArraySpill = field(repr=False)
    _number: int
    _names: tuple[str, ...]
    _labels: int | None

    @property
    def inputs(self) -> Mapping[str, Array]:
        """Arrays by input name."""
        return dict(zip(self._names, self._spill.read(self._number), strict=True))

    @property
    def labels(self) -> Array | None:
        """Labels of the samples, where the data set has labels."""
        return None if self._labels is None else self._spill.read(self._labels)[0]


AnyBatch: TypeAlias = StoredBatch | Batch
_ALL = Shard()


class StoredBatches:
    """The batches of `dataset`, `size` samples each; each call is a pass over them.

    Pickled, it is the description of the data: a process
    that reads it twice gets the same object, and prepares the data once.
    """

    def __init__(self, dataset: Dataset, size: int, progress: Progress | None = None) -> None:
        self.dataset = dataset
        self.size = size
        self._progress = progress or silent
        self._free_bytes = _DISK_BYTES
        self._spill = ArraySpill()
        self._stored: dict[int, StoredBatch] = {}
        self.count = dataset.count(size)
        """The number of batches; None until a pass has told it, where only reading tells."""

    def __call__(self, shard: Shard = _ALL) -> Iterator[AnyBatch]:
        """Yields the batches of a shard; reports progress where that has all of them."""
        count = self.count or 0
        for done, batch in enumerate(self._shard(shard), 1):
            yield batch
            if shard.count is None:
                self._progress(done, count, "batches")

    def _shard(self, shard: Shard) -> Iterator[AnyBatch]:
        count = self.count if shard.count is None else shard.count
        numbers = range(shard.first, shard.first + (count or 0))
        if numbers and all(number in self._stored for number in numbers):
            yield from (self._stored[number] for number in numbers)
            return
        data, size = self.dataset, self.dataset.layout.batch or self.size
        if shard.count is not None:
            data = data.part(shard.first * size, shard.count * size)
        number = shard.first
        for number, batch in enumerate(data.batches(self.size), shard.first):
            arrays, truth = [*batch.inputs.values()], batch.labels
            if number not in self._stored and self._fits(
                arrays if truth is None else [*arrays, truth]
            ):
                # apart: a score reads the labels alone
                labels = None if truth is None else self._spill.append([truth])
                stored, names = self._spill.append(arrays), tuple(batch.inputs)
                self._stored[number] = StoredBatch(batch.size, self._spill, stored, names, labels)
            yield batch
        if shard.count is None:
            self.count = number + 1

    def _fits(self, arrays: Sequence[Any]) -> bool:
        """Whether these are plain arrays for which there is disk space, which they take."""
        if not all(isinstance(array, np.ndarray) and not array.dtype.hasobject for array in arrays):
            return False
        nbytes = sum(array.nbytes for array in arrays)
        if nbytes > self._free_bytes:
            return False
        self._free_bytes -= nbytes
        return True

    def __reduce__(self) -> tuple[Callable[..., "StoredBatches"], tuple[Description, Model, int]]:
        return _shared, (self.dataset.description, findable(self.dataset.model), self.size)


def _shared(description: Description, model: Model, size: int) -> StoredBatches:
    key = hashlib.sha256(pickle.dumps((description, model.sha256, size))).hexdigest()
    batches = _SHARED.get(key)
    if batches is None:
        batches = _SHARED[key] = StoredBatches(reopened(description, model), size)
    return batches


_SHARED: WeakValueDictionary[str, StoredBatches] = WeakValueDictionary()
"""What was read from pickles in this process, and is in use, by the hash of its description."""
