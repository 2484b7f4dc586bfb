"""Some samples of a data set, by their numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset


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


def chosen(dataset: Dataset, numbers: NDArray[np.int64]) -> Dataset:
    """Returns a data set of the samples `numbers`, ascending, of one that is cut into samples."""
    return replace(
        dataset,
        source=ChosenSamples(dataset, numbers),
        origin=dataset.description.chosen(numbers),
        repeat=1,
        first=0,
        limit=None,
    )
