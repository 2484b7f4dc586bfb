"""The protocol of a kind of data set: samples in order, some at a time."""

from collections.abc import Iterator
from typing import Protocol

from tracer.inputs.datasets.batch import Batch


class SampleSource(Protocol):
    """Yields samples; reading twice yields the same samples in the same order."""

    @property
    def samples(self) -> int | None:
        """The number of samples; None if only reading them tells."""

    def pieces(self, rows: int) -> Iterator[Batch]:
        """Yields samples, about `rows` at a time, with only one batch in memory.

        Raises InputError for samples that cannot be read.
        """
