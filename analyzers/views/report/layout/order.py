"""The order of items within their rows, with few crossings of links."""

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tracer.analyzers.views.report.layout.bands import Bands

_SWEEPS = 2
"""Passes downwards and back; more change little."""

Rows = list[list[int]]


def ordered(bands: Bands) -> Rows:
    """Returns the rows of `bands`, each item near the mean place of those that it is joined to."""
    best = rows = bands.rows
    fewest = _crossings(rows, bands.below)
    for _ in range(_SWEEPS):
        if not fewest:
            break
        rows = _swept(rows, bands.above)
        rows = _swept(rows[::-1], bands.below)[::-1]
        crossings = _crossings(rows, bands.below)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _swept(rows: Iterable[list[int]], joined: Sequence[Sequence[int]]) -> Rows:
    """Sorts each row by the means of places in the row before; others keep their place."""
    result: Rows = []
    place: dict[int, int] = {}
    for row in rows:
        mean = {
            item: sum(place[other] for other in joined[item]) / len(joined[item])
            if joined[item]
            else at
            for at, item in enumerate(row)
        }
        result.append(sorted(row, key=mean.__getitem__))
        place = {item: at for at, item in enumerate(result[-1])}
    return result


def _crossings(rows: Rows, below: Sequence[Sequence[int]]) -> int:
    """Returns how many pairs of joins between neighbouring rows cross."""
    count = 0
    for upper, lower in pairwise(rows):
        if len(upper) < 2 or len(lower) < 2:
            continue
        place = {item: at for at, item in enumerate(lower)}
        passed: list[int] = []
        for item in upper:
            for end in sorted([place[other] for other in below[item]]):
                count += len(passed) - bisect_right(passed, end)
                insort(passed, end)
    return count
