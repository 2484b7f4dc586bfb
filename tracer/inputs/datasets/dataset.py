"""A data set for one model: batches that fit the model, read in constant memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracer.errors import InputError, UsageError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType
from tracer.inputs.datasets import images
from tracer.inputs.datasets.batch import Batch, regrouped
from tracer.inputs.datasets.fingerprint import fingerprint
from tracer.inputs.datasets.layout import SampleLayout
from tracer.inputs.datasets.source import SampleSource
from tracer.inputs.model_feeds import check_feeds

_PIXELS = ("float16", "float32", "float64")
_GREY, _COLOURS = 3, 4  # ranks of images without and with a channel axis
_CHUNK = 256  # samples read at a time without a batch size
_CACHE_BYTES = 1 << 24  # fitted samples up to this size are cached for repetitions


@dataclass(frozen=True)
class Dataset:
    """Samples of `source`, repeated `repeat` times, up to `limit`, converted for `model`.

    uint8 images for a float input [N, C, H, W] are divided by 255, resized (bilinear) to H×W, and
    grey is repeated into colours, as in training. Anything else must fit unchanged.
    """

    name: str
    model: Model = field(repr=False)
    source: SampleSource = field(repr=False)
    layout: SampleLayout
    repeat: int = 1
    limit: int | None = None

    @property
    def samples(self) -> int | None:
        """The number of samples; None if only reading them tells."""
        if self.source.samples is None:
            return None
        total = self.source.samples * self.repeat
        return total if self.limit is None else min(total, self.limit)

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
        pieces = self._pieces(size or self.samples or _CHUNK)
        for batch in regrouped(pieces, size, rows) if rows and size else pieces:
            padded = batch.padded(fixed, rows) if fixed else batch
            self._check(padded)
            yield padded

    def fingerprint(self) -> str:
        """Returns the SHA-256, in hexadecimal, of the samples as converted for the model.

        Reads all samples. Data sets with equal inputs, labels and expected outputs in the same
        order have equal fingerprints, however they are stored.
        """
        return fingerprint(self._pieces(_CHUNK), self.layout.rows)

    def _pieces(self, rows: int) -> Iterator[Batch]:
        remaining = self.limit
        for piece in self._repeated(rows):
            if remaining is not None and self.layout.rows and piece.size > remaining:
                piece = piece.cut(0, remaining, self.layout.rows)
            yield piece
            if remaining is not None:
                remaining -= piece.size
                if remaining <= 0:
                    return

    def _repeated(self, rows: int) -> Iterator[Batch]:
        """Yields all samples `repeat` times, converted once if few enough to be cached."""
        cached, size = list[Batch](), 0
        for piece in map(self._converted, self.source.pieces(rows)):
            size += _bytes(piece)
            if self.repeat > 1 and size <= _CACHE_BYTES:
                cached.append(piece)
            yield piece
        for _ in range(self.repeat - 1):
            yield from (
                cached if size <= _CACHE_BYTES else map(self._converted, self.source.pieces(rows))
            )

    def _converted(self, piece: Batch) -> Batch:
        declared = {
            value.name: tensor_type.from_type_proto(value.type) for value in self.model.inputs
        }
        try:
            converted = {
                name: _converted(v, declared.get(name)) for name, v in piece.inputs.items()
            }
        except InputError as error:
            raise InputError(f"{self.name}: {error.what}", error.hint) from error
        return replace(piece, inputs=converted)

    def _check(self, batch: Batch) -> None:
        try:
            check_feeds(self.model, batch.inputs)
        except InputError as error:
            raise InputError(f"{self.name}: {error.what}", error.hint) from error


def _bytes(piece: Batch) -> int:
    """Returns the bytes of inputs and labels; more than the cache holds if unknown."""
    arrays = [*piece.inputs.values()]
    arrays += [] if piece.labels is None else [piece.labels]
    plain = piece.outputs is None and all(
        isinstance(array, np.ndarray) and not array.dtype.hasobject for array in arrays
    )
    return sum(array.nbytes for array in arrays) if plain else _CACHE_BYTES + 1


def _converted(value: Any, declared: TensorType | None) -> Any:
    """Converts pixels for a float input; returns any other value unchanged."""
    if not isinstance(value, np.ndarray) or declared is None or len(declared.shape or ()) != 4:
        return value
    if declared.dtype not in _PIXELS or value.dtype != np.uint8:
        return value
    if value.ndim not in (_GREY, _COLOURS):
        return value
    pixels = value[:, None] if value.ndim == _GREY else value
    assert declared.shape is not None
    shape = [
        size if isinstance(size, int) else own
        for size, own in zip(declared.shape[1:], pixels.shape[1:], strict=True)
    ]
    fitted = images.fit(pixels, (shape[0], shape[1], shape[2]))
    return images.as_float(fitted).astype(declared.dtype, copy=False)
