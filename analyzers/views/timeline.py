"""A timeline: tracks of nested slices and counters, as trace viewers draw them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Value = str | int | float
"""What a viewer shows beside a name."""


@dataclass(slots=True)
class Slice:
    """What took from `begin_ns` to `end_ns`, with what ran inside it, in the order of time."""

    name: str
    begin_ns: int
    end_ns: int
    values: Mapping[str, Value] = field(default_factory=dict)
    inner: list["Slice"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Track:
    """A row of slices, one after the other."""

    name: str
    slices: Sequence[Slice]

    def boundaries(self) -> Iterator[tuple[int, Slice | None]]:
        """Yields the begin of each slice, and its end with None, in the order of time."""
        return _boundaries(self.slices)


@dataclass(frozen=True, slots=True)
class Counter:
    """A number of bytes that holds from each point in time, in ns, to the next."""

    name: str
    points: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Process:
    """Tracks and counters that belong together and begin at 0."""

    name: str
    tracks: tuple[Track, ...]
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that a viewer shows of one result; `notes` are sentences about it."""

    title: str
    processes: tuple[Process, ...]
    notes: tuple[str, ...] = ()


def _boundaries(slices: Sequence[Slice]) -> Iterator[tuple[int, Slice | None]]:
    for each in slices:
        yield each.begin_ns, each
        yield from _boundaries(each.inner)
        yield each.end_ns, None
