"""A data set for one model: batches that fit the model, read in constant memory."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from tracer.errors import UsageError, locate_errors
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.inputs.datasets import images
from tracer.inputs.datasets.batch import Batch, SampleLayout, SampleSource, regrouped
from tracer.inputs.feedset import check_feeds, nan_notes

_PIXELS = ("float16", "float32", "float64")
_GREY, _COLOURS = 3, 4  # ranks of images without and with a channel axis
_CHUNK = 256  # samples read at a time without a batch size
_CACHE_BYTES = 1 << 24  # fitted samples up to this size are cached for repetitions


@dataclass(frozen=True)
class Dataset:
    """Samples of `source`, repeated `repeat` times, converted for `model`.

    Of the samples that this makes, the data set has those from number `first` up to `limit` - 1.
    `notes` are about the samples that were read so far, of this data set or of a part of it.
    uint8 images for a float input [N, C, H, W] are divided by 255, resized (bilinear) to H×W, and
    grey is repeated into colours, as in training. Anything else must fit unchanged.
    """

    name: str
    model: Model = field(repr=False)
    source: SampleSource = field(repr=False)
    layout: SampleLayout
    origin: "Description" = field(repr=False)
    repeat: int = 1
    limit: int | None = None
    first: int = 0
    notes: dict[str, None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def samples(self) -> int | None:
        """The number of samples; None if only reading them tells."""
        if self.source.samples is None:
            return None
        total = self.source.samples * self.repeat
        stop = total if self.limit is None else min(total, self.limit)
        return max(0, stop - self.first)

    @property
    def description(self) -> "Description":
        """What opens this data set in another process, with a model of its own."""
        return replace(self.origin, first=self.first, stop=self.limit)

    def __reduce__(self) -> Never:
        """Raises TypeError: a copy in another process would have the whole model with it."""
        raise TypeError("a Dataset has its model with it: send its `description` instead")

    def part(self, first: int, count: int) -> "Dataset":
        """Returns samples `first` to `first` + `count` - 1 of this data set; fewer at its end.

        Reading it reads no other samples, except where only unpacking tells where they are. Its
        batches are those of the whole if `first` is a multiple of their size. Raises UsageError for
        negative numbers, and for inputs that cannot be cut into samples.
        """
        if first < 0 or count < 0:
            raise UsageError(f"samples {first} to {first + count - 1}", "Count from 0.")
        if not self.layout.rows:
            raise UsageError(
                f"{self.name}: the inputs of {self.model.name} cannot be cut into samples",
                "Read the data set as a whole.",
            )
        begin = self.first + first
        stop = begin + count if self.limit is None else min(begin + count, self.limit)
        return replace(self, first=begin, limit=stop)

    def count(self, size: int | None) -> int | None:
        """Returns the number of batches of `size` samples; None if only reading them tells."""
        size = self.layout.batch or size
        if self.samples is None or not self.layout.rows:
            return None
        return 1 if size is None else -(-self.samples // size)

    def batches(self, size: int | None) -> Iterator[Batch]:
        """Yields batches of `size` samples, or of the model's fixed batch; the last may be smaller.

        Without a size, or if the inputs cannot be cut into samples, batches are as stored. Raises
        UsageError for a size below 1, InputError for data that cannot be read or do not fit the
        model.
        """
        if size is not None and size < 1:
            raise UsageError(f"batches of {size} samples", "Set a batch of 1 or more.")
        rows, fixed = self.layout.rows, self.layout.batch
        size = fixed or size
        total = self.samples or size or _CHUNK
        pieces = self._pieces(min(size or total, total))
        for batch in regrouped(pieces, size, rows) if rows and size else pieces:
            padded = batch.padded(fixed, rows) if fixed else batch
            with locate_errors(self.name):
                check_feeds(self.model, padded.inputs)
            yield padded

    def fingerprint(self) -> str:
        """Returns the SHA-256, in hexadecimal, of the samples as converted for the model.

        Reads all samples. Data sets with equal inputs, labels and expected outputs in the same
        order have equal fingerprints, however they are stored.
        """
        return fingerprint(self._pieces(_CHUNK), self.layout.rows)

    def _pieces(self, rows: int) -> Iterator[Batch]:
        remaining = None if self.limit is None else self.limit - self.first
        if remaining is not None and remaining <= 0:
            return
        for piece in self._repeated(rows):
            if remaining is not None and self.layout.rows and piece.size > remaining:
                piece = piece.part(0, remaining, self.layout.rows)
            yield piece
            if remaining is not None:
                remaining -= piece.size
                if remaining <= 0:
                    return

    def _repeated(self, rows: int) -> Iterator[Batch]:
        """Yields the samples from `first` on, converted once if few enough to be cached."""
        times, start = self.repeat, self.first
        if start:
            samples = self.source.samples
            if samples is None:  # only reading the source tells
                samples = sum(piece.size for piece in self.source.pieces(_CHUNK))
            passed, start = divmod(start, max(1, samples))
            times -= passed
        if start and times > 0:
            yield from self._read(rows, start)
            times -= 1
        if times < 1:
            return
        cached, size = list[Batch](), 0
        for piece in self._read(rows):
            arrays = [*piece.inputs.values()]
            arrays += [] if piece.labels is None else [piece.labels]
            plain = piece.outputs is None and all(
                isinstance(array, np.ndarray) and not array.dtype.hasobject for array in arrays
            )
            # of unknown size counts as more than the cache holds
            size += sum(array.nbytes for array in arrays) if plain else _CACHE_BYTES + 1
            if times > 1 and size <= _CACHE_BYTES:
                cached.append(piece)
            yield piece
        for _ in range(times - 1):
            yield from cached if size <= _CACHE_BYTES else self._read(rows)

    def _read(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields the samples of the source from number `first` on, converted for the model."""
        return map(self._converted, self.source.pieces(rows, first))

    def _converted(self, piece: Batch) -> Batch:
        declared = tensor_type.declared_types(self.model.inputs)
        with locate_errors(self.name):
            converted = {
                name: _converted(v, declared.get(name)) for name, v in piece.inputs.items()
            }
        self.notes.update(dict.fromkeys(nan_notes(converted, self.name)))
        return replace(piece, inputs=converted)


@dataclass(frozen=True, slots=True)
class Description:
    """Samples `first` to `stop` - 1 of a data set, which `opening.reopened` opens for a model.

    `name` is what the user named. `base` is its data without split and repetitions, and relative
    paths start at the folder `home`. `limit` is the limit that the data set was opened with. With
    `numbers`, `first` and `stop` count these samples instead of all. Two equal descriptions are of
    the same samples, as long as nobody changes the files.
    """

    name: str
    base: str
    split: str
    repeat: int
    limit: int | None
    folder: Path
    home: Path
    numbers: tuple[int, ...] | None = None
    first: int = 0
    stop: int | None = None

    def chosen(self, numbers: NDArray[np.int64]) -> "Description":
        """Returns the description of some of these samples, by their numbers, ascending."""
        total = [int(number) + self.first for number in numbers]
        if self.numbers is not None:
            total = [self.numbers[number] for number in total]
        return replace(self, numbers=tuple(total), first=0, stop=None)


@dataclass(frozen=True, slots=True)
class ChosenSamples:
    """The samples `numbers` (n,) of a data set, as converted for its model."""

    dataset: Dataset = field(repr=False)
    numbers: NDArray[np.int64] = field(repr=False)

    @property
    def samples(self) -> int:
        """How many samples were chosen."""
        return len(self.numbers)

    def pieces(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields the chosen samples of each batch; reads none before the first of them."""
        numbers = self.numbers[first:]
        if not len(numbers):
            return
        start, last = int(numbers[0]), int(numbers[-1])
        for batch in self.dataset.part(start, last + 1 - start).batches(rows):
            begun, ended = np.searchsorted(numbers, (start, start + batch.size))
            if begun < ended:
                yield batch.chosen(numbers[begun:ended] - start, self.dataset.layout.rows)
            start += batch.size


def choose_samples(dataset: Dataset, numbers: NDArray[np.int64]) -> Dataset:
    """Returns a data set of the samples `numbers`, ascending, of one that is cut into samples."""
    return replace(
        dataset,
        source=ChosenSamples(dataset, numbers),
        origin=dataset.description.chosen(numbers),
        repeat=1,
        first=0,
        limit=None,
    )


def fingerprint(pieces: Iterable[Batch], rows: frozenset[str]) -> str:
    """Returns the SHA-256, in hexadecimal, of all samples in order.

    Each input, expected output and the labels has its own hash over element type, shape and bytes
    (per row for inputs in `rows`); the result hashes all names and hashes.
    """
    hashes: dict[str, Any] = {}
    for piece in pieces:
        tensors = {f"input {name}": value for name, value in piece.inputs.items()}
        tensors |= {f"output {name}": value for name, value in (piece.outputs or {}).items()}
        tensors |= {} if piece.labels is None else {"labels": piece.labels}
        for name, value in tensors.items():
            digest = hashes.setdefault(name, hashlib.sha256())
            shared = name in {f"input {own}" for own in piece.inputs if own not in rows}
            for each in value if rows and not shared else [value]:
                _update(digest, each)
    total = hashlib.sha256()
    for name in sorted(hashes):
        total.update(f"{name}\0{hashes[name].hexdigest()}\0".encode())
    return total.hexdigest()


def _update(digest: Any, value: Any) -> None:
    if value is None or isinstance(value, list):
        digest.update(b"absent" if value is None else f"sequence of {len(value)}".encode())
        for each in value or ():
            _update(digest, each)
        return
    array = np.asarray(value)
    digest.update(f"{array.dtype}{array.shape}".encode())
    if array.dtype.hasobject:  # strings
        for text in array.ravel():
            digest.update(f"{len(str(text))}:{text}".encode())
    else:
        digest.update(np.ascontiguousarray(array).data)


def _converted(value: Any, declared: tensor_type.TensorType | None) -> Any:
    """Converts pixels for a float input; returns any other value unchanged."""
    if not isinstance(value, np.ndarray) or declared is None or len(declared.shape or ()) != 4:
        return value
    if declared.dtype not in _PIXELS or value.dtype != np.uint8:
        return value
    if value.ndim not in (_GREY, _COLOURS):
        return value
    pixels = value[:, None] if value.ndim == _GREY else value
    return images.as_float(images.fit_declared(pixels, declared)).astype(declared.dtype, copy=False)
