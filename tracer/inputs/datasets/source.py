"""The seam between a kind of data set and the rest: samples in order, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tracer.inputs.datasets.batch import Batch


class Source(Protocol):
    """Where samples come from; reading it twice gives the same samples in the same order."""

    @property
    def samples(self) -> int | None:
        """How many there are; None where that is known only after reading them."""

    def pieces(self, rows: int) -> Iterator[Batch]:
        """The samples, about `rows` at a time, with no more of them in memory than are out.

        Raises InputError where they cannot be read.
        """
