"""Stacks with weights, as flame graphs are drawn from."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """A module, or a node with the line of source that created it; '' and 0 where unknown."""

    name: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A node below its modules, outermost first: its time in µs, its MACs, the bytes it moves.

    A value is 0 where it is not known, as the formats have no missing values.
    """

    stack: tuple[Frame, ...]
    time_us: float
    macs: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The samples of one run, in the order in which they ran."""

    name: str
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Stacks:
    """The profiles of one result; `notes` are sentences about it."""

    title: str
    profiles: tuple[Profile, ...]
    notes: tuple[str, ...] = ()
