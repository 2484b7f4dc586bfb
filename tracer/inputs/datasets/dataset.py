"""A data set for one model: batches that fit it, any number of times, in memory that is flat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracer import inputs
from tracer.errors import InputError, UsageError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType
from tracer.inputs.datasets import images
from tracer.inputs.datasets.batch import Batch, regrouped
from tracer.inputs.datasets.fingerprint import fingerprint
from tracer.inputs.datasets.layout import Layout
from tracer.inputs.datasets.source import Source

_PIXELS = ("float16", "float32", "float64")
_GREY, _COLOURS = 3, 4  # the ranks of images without and with an axis of channels
_CHUNK = 256  # samples read at a time where no batch size says it
_ROOM = 1 << 24  # bytes of fitted samples that are kept where they are to be repeated


@dataclass(frozen=True)
class Dataset:
    """Samples from `source`, all of them `repeat` times, then up to `limit`, as `model` takes them.

    uint8 images for an input of floats [N, C, H, W] are divided by 255, resized (bilinear) to H×W
    and grey repeated into colours, as they are for training; anything else must fit as it is.
    """

    name: str
    model: Model = field(repr=False)
    source: Source = field(repr=False)
    layout: Layout
    repeat: int = 1
    limit: int | None = None

    @property
    def samples(self) -> int | None:
        """How many there are; None where that is known only after reading them."""
        known = self.source.samples
        if known is None:
            return None
        return min(known * self.repeat, known * self.repeat if self.limit is None else self.limit)

    def count(self, size: int | None) -> int | None:
        """How many batches of `size` there are; None where only reading them tells."""
        size = self.layout.batch or size
        if self.samples is None or not self.layout.rows:
            return None
        return 1 if size is None else -(-self.samples // size)

    def batches(self, size: int | None) -> Iterator[Batch]:
        """Batches of `size` samples, the last perhaps smaller, or as many as the model insists on.

        Without a size, and where no sample can be cut out of the inputs, they come as they are
        stored. Raises UsageError for a size below 1, InputError for data that cannot be read or do
        not fit the model.
        """
        if size is not None and size < 1:
            raise UsageError(f"batches of {size} samples", "Give a batch of 1 or more.")
        rows, fixed = self.layout.rows, self.layout.batch
        size = fixed or size
        pieces = self._pieces(size or self.samples or _CHUNK)
        for batch in regrouped(pieces, size, rows) if rows and size else pieces:
            whole = batch.padded(fixed, rows) if fixed else batch
            self._check(whole)
            yield whole

    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the samples as the model takes them; however they are stored.

        Reads them all once. Two data sets have the same one if they give the same inputs, labels
        and expected outputs in the same order.
        """
        return fingerprint(self._pieces(_CHUNK), self.layout.rows)

    def _pieces(self, rows: int) -> Iterator[Batch]:
        left = self.limit
        for piece in self._repeated(rows):
            if left is not None and self.layout.rows and piece.size > left:
                piece = piece.cut(0, left, self.layout.rows)
            yield piece
            left = None if left is None else left - piece.size
            if left is not None and left <= 0:
                return

    def _repeated(self, rows: int) -> Iterator[Batch]:
        """All samples, suited, `repeat` times; made once if they are few enough to be kept."""
        kept, size = list[Batch](), 0
        for piece in map(self._suited, self.source.pieces(rows)):
            size += _bytes(piece)
            if self.repeat > 1 and size <= _ROOM:
                kept.append(piece)
            yield piece
        for _ in range(self.repeat - 1):
            yield from kept if size <= _ROOM else map(self._suited, self.source.pieces(rows))

    def _suited(self, piece: Batch) -> Batch:
        declared = {
            value.name: tensor_type.from_type_proto(value.type) for value in self.model.inputs
        }
        try:
            suited = {name: _suited(v, declared.get(name)) for name, v in piece.inputs.items()}
        except InputError as error:
            raise InputError(f"{self.name}: {error.what}", error.hint) from error
        return replace(piece, inputs=suited)

    def _check(self, batch: Batch) -> None:
        try:
            inputs.check(self.model, batch.inputs)
        except InputError as error:
            raise InputError(f"{self.name}: {error.what}", error.hint) from error


def _bytes(piece: Batch) -> int:
    """What inputs and labels take; more than there is room for where that is not known."""
    arrays = [*piece.inputs.values()]
    arrays += [] if piece.labels is None else [piece.labels]
    plain = piece.outputs is None and all(
        isinstance(array, np.ndarray) and not array.dtype.hasobject for array in arrays
    )
    return sum(array.nbytes for array in arrays) if plain else _ROOM + 1


def _suited(value: Any, declared: TensorType | None) -> Any:
    """Pixels as an input of floats takes them; any other value as it is."""
    if not isinstance(value, np.ndarray) or declared is None or len(declared.shape or ()) != 4:
        return value
    if declared.dtype not in _PIXELS or value.dtype != np.uint8:
        return value
    if value.ndim not in (_GREY, _COLOURS):
        return value
    pixels = value[:, None] if value.ndim == _GREY else value
    assert declared.shape is not None
    wanted = [
        size if isinstance(size, int) else own
        for size, own in zip(declared.shape[1:], pixels.shape[1:], strict=True)
    ]
    fitted = images.fit(pixels, (wanted[0], wanted[1], wanted[2]))
    return images.as_float(fitted).astype(declared.dtype, copy=False)
