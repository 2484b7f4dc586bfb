"""What opens a data set again in another process: names and options, never samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


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

    def chosen(self, numbers: NDArray[np.int64]) -> Description:
        """Returns the description of some of these samples, by their numbers, ascending."""
        total = [int(number) + self.first for number in numbers]
        if self.numbers is not None:
            total = [self.numbers[number] for number in total]
        return replace(self, numbers=tuple(total), first=0, stop=None)
