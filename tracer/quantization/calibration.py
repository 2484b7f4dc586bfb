"""Batches of a data set as onnxruntime's calibration reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.inputs import check
from tracer.inputs.datasets import Dataset
from tracer.inputs.feedset import Feeds
from tracer.support.progress import Progress


class Batches(Protocol):
    """Feeds for one inference after another, as often as they are asked for."""

    def __len__(self) -> int:
        """How many there are."""

    def __iter__(self) -> Iterator[Feeds]:
        """From the first one on."""


class Reader:
    """The batches, one at a time: onnxruntime keeps what it collects until it is told to merge.

    It asks for a range of one batch after another (its option CalibStridedMinMax), and merges
    minima, maxima and histograms after each, so that memory does not grow with the data.
    """

    def __init__(self, model: Model, batches: Batches, progress: Progress | None) -> None:
        if not len(batches):
            raise InputError("there is nothing to calibrate with", "Give at least one sample.")
        self._model = model
        self._count = len(batches)
        self._rest = iter(batches)
        self._progress = progress
        self._done = 0
        self._due = 0

    def __len__(self) -> int:
        return self._count

    def set_range(self, start_index: int, end_index: int) -> None:
        """Allow the batches up to `end_index`, of which those before `start_index` are read."""
        self._due = end_index

    def get_next(self) -> Any:
        """The next batch of the range, or None. Raises InputError for one that does not fit."""
        if self._done >= self._due:
            return None
        feeds = next(self._rest)
        check(self._model, feeds)
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._count, "calibrating")
        return dict(feeds)


@dataclass(frozen=True)
class Samples:
    """The samples of a data set, `size` at a time."""

    dataset: Dataset
    size: int

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Feeds]:
        return (batch.inputs for batch in self.dataset.batches(self.size))

    @cached_property
    def _count(self) -> int:
        """By reading them once: how many samples come together is for the data to say."""
        return sum(1 for _ in self.dataset.batches(self.size))
