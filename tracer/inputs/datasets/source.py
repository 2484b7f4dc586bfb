"""The protocol of a kind of data set: samples in order, some at a time."""

from collections.abc import Iterator
from typing import Protocol

from tracer.inputs.datasets.batch import Batch


class SampleSource(Protocol):
    """Yields samples; reading twice yields the same samples in the same order."""

    @property
    def samples(self) -> int | None:
        """The number of samples; None if only reading them tells."""

    def pieces(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields samples from number `first` on, about `rows` at a time.

        Memory holds one batch. `first` is 0 where inputs cannot be cut into samples.
        Raises InputError for samples that cannot be read.
        """
