"""The work of one execution of an operator, and the error for unknown work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add

from tracer.errors import UsageError


class UnknownWorkError(Exception):
    """Raised by a rule for a node of unknown work; the text is the reason. Caught by `cost`."""


class UnknownShapeError(UnknownWorkError):
    """Raised for a node that needs the shape of `tensor`, a name, which is unknown."""

    def __init__(self, tensor: str) -> None:
        super().__init__(f"the shape of '{tensor}' is unknown")
        self.tensor = tensor


@dataclass(frozen=True, slots=True)
class Count:
    """Elementary operations, each counted once.

    `macs` are multiply-accumulates; `adds` (also subtractions) and `muls` are further additions and
    multiplications. `other` is any other operation: a division, a comparison, one evaluation of a
    function such as exp. `channel_sums` is the number of partial sums per channel of a convolution,
    for conventions; it is no work by itself.
    """

    macs: int = 0
    adds: int = 0
    muls: int = 0
    other: int = 0
    channel_sums: int = 0

    @property
    def flops(self) -> int:
        """Two per MAC and one per other operation, in every convention."""
        return 2 * self.macs + self.adds + self.muls + self.other

    @property
    def _fields(self) -> tuple[int, ...]:  # `astuple` copies, and takes ten times as long
        return self.macs, self.adds, self.muls, self.other, self.channel_sums

    def checked(self) -> Count:
        """Returns itself. Raises ValueError if an attribute made a count negative."""
        if min(self._fields) < 0:
            raise ValueError("a count below zero")
        return self

    def __add__(self, more: Count) -> Count:
        return Count(*map(add, self._fields, more._fields))

    def __mul__(self, times: int) -> Count:
        return Count(*[value * times for value in self._fields])


NOTHING = Count()
"""The work of an operator that only moves, views or describes data."""


Convention = Callable[[Count], int]
"""Returns the additions of a count, including the additions of its MACs."""


def plain(count: Count) -> int:
    """Counts one addition per MAC: every sum is accumulated from zero."""
    return count.macs + count.adds


def channelwise(count: Count) -> int:
    """Sums the window of each input channel from zero, then the channel sums from zero.

    A convolution over C channels and K weights has K + C additions per output. Other operators
    count as in `plain`.
    """
    return plain(count) + count.channel_sums


CONVENTIONS: dict[str, Convention] = {"plain": plain, "channelwise": channelwise}


def find(name: str) -> Convention:
    """Returns the convention called `name`. Raises UsageError for an unknown one."""
    if name not in CONVENTIONS:
        allowed = ", ".join(CONVENTIONS)
        raise UsageError(f"no counting convention is called '{name}'", f"Choose one of: {allowed}.")
    return CONVENTIONS[name]
