"""Find sequences that a row of nodes repeats, where no module says so."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from tracer.analyzers.views.report.layout.box import OUTSIDE, Link
from tracer.support.types import IntArray

_LONGEST = 64
"""Most nodes of a sequence; a layer of a transformer without its modules has some 50."""
_FEWEST, _FEWEST_ALONE = 3, 8
"""Fewest repeats of a sequence, and of a single node."""


_Stretch = tuple[int, int, int]
"""Where something repeats: from, to before, and after how many items."""


def sequences(kinds: Sequence[int], links: Collection[Link], passing: Sequence[int]) -> list[range]:
    """Returns the beginnings of sequences that repeat: the same kinds, linked in the same way.

    The step of a range is the length of its sequences. Longer stretches come before shorter ones
    that they overlap. `passing` are the links that pass the beginning of each item: sequences begin
    where few do. A single item repeats like a sequence, and has no range.
    """
    words = _words(kinds, links)
    longest = min(_LONGEST, len(kinds) // 2)
    found = [each for length in range(1, longest + 1) for each in _stretches(words, length)]
    found.sort(key=lambda each: (each[0] - each[1], each[2], each[0]))
    taken = bytearray(len(kinds))
    chosen = []
    for start, stop, length in found:
        if not any(taken[start:stop]):
            taken[start:stop] = bytes([True]) * (stop - start)
            if length > 1:
                chosen.append(_begun(start, stop, length, passing))
    return sorted(chosen, key=lambda each: each.start)


def _words(kinds: Sequence[int], links: Collection[Link]) -> IntArray:
    """Returns a number for each item, equal for the same kind that reads the same way back."""
    back: list[list[int]] = [[] for _ in kinds]
    for first, second in links:
        if OUTSIDE not in (first, second) and second - first < _LONGEST:
            back[second].append(second - first)
    numbers: dict[tuple[int, ...], int] = {}
    words = ((kind, *sorted(steps)) for kind, steps in zip(kinds, back, strict=True))
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)


def _stretches(words: IntArray, length: int) -> Iterator[_Stretch]:
    """Yields where words at this distance are equal for long enough."""
    least = _FEWEST if length > 1 else _FEWEST_ALONE
    equal = np.concatenate([[False], words[length:] == words[:-length], [False]])
    starts, stops = np.flatnonzero(np.diff(equal)).reshape(-1, 2).T
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        if stop - start >= (least - 1) * length:
            yield start, stop + length, length


def _begun(start: int, stop: int, length: int, passing: Sequence[int]) -> range:
    """Returns the beginnings in a stretch, moved to where few links pass."""
    room = min(length - 1, stop - start - _FEWEST * length)
    moved = range(start, start + room + 1)
    begin = min(moved, key=lambda each: passing[each + length])
    return range(begin, stop - length + 1, length)
