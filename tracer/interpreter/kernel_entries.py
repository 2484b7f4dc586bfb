"""The door to compiled code, which looks at every array before a compiled function gets it.

Compiled code looks at nothing: it reads and writes beyond an array that is smaller, or of another
type, than it was compiled for. Every function that Python calls is therefore an `Entry` or a
`Task`, with the condition that the sizes of its arguments must meet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.support.types import Array, type_text

Fits = Callable[..., Any]
"""Whether the arguments of a compiled function fit together."""


class UnfitError(TypeError):
    """Arguments that a compiled function must not get."""


@dataclass(frozen=True, slots=True)
class Place:
    """An array among the arguments of a task: its element type, and whether it is written to."""

    dtype: np.dtype[Any]
    written: bool = False


READ, WRITTEN = Place(np.dtype(np.float32)), Place(np.dtype(np.float32), written=True)
INTEGERS = Place(np.dtype(np.int64))


@dataclass(frozen=True, slots=True)
class Entry:
    """A function that numba compiled: it compares types, ranks, order and writability itself."""

    compiled: Callable[..., Any]
    fits: Fits

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function. Raises UnfitError, or numba's TypeError, for what does not fit."""
        if not self.fits(*arguments):
            name = getattr(self.compiled, "__qualname__", "")
            raise UnfitError(f"{name} cannot take {_shown(arguments)}")
        return self.compiled(*arguments)


@dataclass(frozen=True, slots=True)
class Task:
    """A compiled function of argument words and a block number, for `numeric.task_team`.

    Its arguments are arrays at `places`, then numbers; `fits` takes the number of blocks before
    them.
    """

    name: str
    address: int
    places: tuple[Place, ...]
    fits: Fits

    def words(self, count: int, arrays: Sequence[Array], numbers: Sequence[int]) -> Array:
        """Returns the argument words: address and size of each array, then the numbers.

        Raises UnfitError for arrays that are not contiguous and aligned, or do not fit.
        """
        words: list[int] = []
        for array, place in zip(arrays, self.places, strict=True):
            flags = array.flags
            sound = flags.carray if place.written else flags.c_contiguous and flags.aligned
            if array.dtype != place.dtype or not sound:
                raise UnfitError(
                    f"{self.name} needs a contiguous array of {place.dtype}"
                    f"{' that it may write to' * place.written}, not {type_text(array)}"
                )
            words += array.__array_interface__["data"][0], array.size
        if not self.fits(count, *arrays, *numbers):
            raise UnfitError(f"{self.name} cannot take {_shown((*arrays, *numbers))}")
        words += numbers
        return np.array(words, np.int64)


def entry(fits: Fits) -> Callable[[Callable[..., Any]], Entry]:
    """Makes what numba compiled an entry; for a function that compiled code does not call."""
    return lambda compiled: Entry(compiled, fits)


def task(*places: Place, fits: Fits) -> Callable[[Any], Task]:
    """Makes a function that numba compiled for C a task."""
    return lambda compiled: Task(compiled.__name__, compiled.address, places, fits)


def _shown(arguments: Sequence[Any]) -> str:
    return ", ".join(
        f"({_shown(each)})" if isinstance(each, tuple)
        else type_text(each) if isinstance(each, np.ndarray) else str(each)
        for each in arguments
    )  # fmt: skip
