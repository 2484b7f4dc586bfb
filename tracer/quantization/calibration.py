"""Batches of a data set as onnxruntime's calibration reads them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tracer import shapes
from tracer.containment.activity import Progress
from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.feedset import Feeds, check_feeds
from tracer.limits import size_text


class CalibrationBatches(Protocol):
    """Feeds of one inference after another; can be iterated several times."""

    def __len__(self) -> int:
        """The number of batches."""

    def __iter__(self) -> Iterator[Feeds]:
        """Yields the batches, from the first one on."""


def not_finite(batches: CalibrationBatches) -> str | None:
    """Returns the first input that holds NaN or infinity in any of the batches, else None."""
    return next(
        (
            name
            for feeds in batches
            for name, value in feeds.items()
            if value.dtype.kind == "f" and not np.isfinite(value).all()
        ),
        None,
    )


class CalibrationReader:
    """A CalibrationDataReader of onnxruntime that hands out one batch per range.

    onnxruntime stores all outputs of a range before it merges minima, maxima and histograms. With
    ranges of one batch (its option CalibStridedMinMax) memory does not grow with the data.
    """

    def __init__(self, model: Model, batches: CalibrationBatches, progress: Progress) -> None:
        if not len(batches):
            raise InputError("there is nothing to calibrate with", "Give at least one sample.")
        self._model = model
        self._count = len(batches)
        self._batches = iter(batches)
        self._progress = progress
        self._done = 0
        self._end = 0

    def __len__(self) -> int:
        return self._count

    def set_range(self, start_index: int, end_index: int) -> None:
        """Allows the batches up to `end_index`; those before `start_index` have been read."""
        self._end = end_index

    def get_next(self) -> Any:
        """Returns the next batch of the range, or None. Raises InputError for bad feeds."""
        if self._done >= self._end:
            return None
        feeds = next(self._batches)
        check_feeds(self._model, feeds)
        self._done += 1
        self._progress(self._done, self._count, "calibrating")
        return dict(feeds)


@dataclass(frozen=True)
class CalibrationSamples:
    """The samples of a data set, `size` at a time."""

    dataset: Dataset
    size: int

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Feeds]:
        return (batch.inputs for batch in self.dataset.batches(self.size))

    @cached_property
    def _count(self) -> int:
        """Counts by reading: the data may have batches of their own."""
        return sum(1 for _ in self.dataset.batches(self.size))


_USUAL_BATCH = 32
_MOST_BYTES = 2 << 30
"""Of the values of a batch; two graphs and their copies take two to three times as much. What is
free here plays no part: ranges differ by the batch in their last bit, histograms in more."""


def choose_batch(dataset: Dataset | None, asked: int | None) -> tuple[int, tuple[str, ...]]:
    """Returns how many samples run at a time, and a note where these are fewer than usual.

    That is what was asked for, if anything. Raises the errors of `Dataset.batches` and of
    `shapes.infer`.
    """
    if asked or dataset is None or dataset.layout.batch or not dataset.layout.rows:
        return asked or _USUAL_BATCH, ()
    nbytes = sum(value_bytes(dataset, 1))
    batch = max(1, min(_USUAL_BATCH, _MOST_BYTES // max(nbytes, 1)))
    size = size_text(_USUAL_BATCH * nbytes)
    note = f"the batch is {batch}, as the values of {_USUAL_BATCH} samples would take {size}"
    return batch, () if batch == _USUAL_BATCH else (note,)


def value_bytes(dataset: Dataset, samples: int) -> list[int]:
    """Returns the bytes of each tensor that the model computes of so many samples; 0: unknown.

    Raises the errors of `Dataset.batches` and of `shapes.infer`.
    """
    first = next(dataset.batches(samples), None)
    inputs = {} if first is None else {name: np.shape(v) for name, v in first.inputs.items()}
    types = shapes.infer(dataset.model, inputs)
    values = [types.of(name, node.scope) for node in dataset.model.nodes for name in node.outputs]
    return [(each and each.nbytes) or 0 for each in values]
