"""Where items stand in their rows: the longest way is straight, and the others are beside it."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import median

from tracer.analyzers.views.report.layout.bands import Bands
from tracer.analyzers.views.report.layout.lines import lines, straightened
from tracer.analyzers.views.report.layout.order import Rows

_APART, _BESIDE, _TOGETHER = 24, 16, 10
"""Pixels between two children, a child and a waypoint, two waypoints."""
_LINE, _WAY, _NEAR, _FREE = 1e9, 1e4, 1.0, 0.1
"""How items resist being pushed: those of a straight line of children, or of waypoints, those that
are joined to others, and those that are not, in this direction."""

_Pull = tuple[float, float]
"""Where an item should be, and how it resists being elsewhere."""


def centres(bands: Bands, rows: Rows, widths: Sequence[int]) -> list[float]:
    """Returns the middle of each item, pixels; `widths` are those of the children.

    Items of a row keep their distances, and are otherwise as near as possible, in the sense of
    least squares, to the items that they are joined to.
    """
    distances = [_distances(row, widths) for row in rows]
    x = [0.0] * len(bands.above)
    for row, apart in zip(rows, distances, strict=True):
        middle = sum(apart) / 2
        for item, place in zip(row, accumulate(apart, initial=-middle), strict=False):
            x[item] = place
    to_above, to_below = lines(bands, rows)
    downwards, upwards = range(len(rows)), range(len(rows) - 1, -1, -1)
    for joined, line, other, order in (
        (bands.above, to_above, {}, downwards),
        (bands.below, to_below, {}, upwards),
        (bands.above, to_above, to_below, downwards),
    ):
        for at in order:
            pulls = [_pull(item, joined[item], line, other, bands, x) for item in rows[at]]
            _place(rows[at], pulls, distances[at], x)
    wanted = straightened(bands, rows, distances, x)
    for row, apart in zip(rows, distances, strict=True):
        if not wanted.keys().isdisjoint(row):
            pulls = [(wanted[i], _NEAR) if i in wanted else (x[i], _LINE) for i in row]
            _place(row, pulls, apart, x)
    return x


def _distances(row: Sequence[int], widths: Sequence[int]) -> list[float]:
    """The least distances between the middles of neighbours."""
    count = len(widths)
    distances = []
    for left, right in pairwise(row):
        half = sum(widths[item] for item in (left, right) if item < count) / 2
        gap = (_APART, _BESIDE, _TOGETHER)[(left >= count) + (right >= count)]
        distances.append(half + gap)
    return distances


def _pull(
    item: int,
    joined: Sequence[int],
    line: Mapping[int, int],
    kept: Mapping[int, int],
    bands: Bands,
    x: Sequence[float],
) -> _Pull:
    """Where an item should be: in line with its partner, or where it is if its line begins here."""
    partner = line.get(item, kept.get(item))
    if partner is not None:
        is_line = max(item, partner) < bands.children
        return x[partner], _LINE if is_line else _WAY
    if len(joined) == 1:
        return x[joined[0]], _NEAR
    if joined:
        return median(x[other] for other in joined), _NEAR
    return x[item], _FREE


def _place(
    row: Sequence[int], pulls: Sequence[_Pull], distances: Sequence[float], x: list[float]
) -> None:
    """Places the items of a row: the weighted least squares of their distances to where they want.

    Pooling adjacent violators: neighbours that would be too near become one block at their mean.
    """
    blocks: list[tuple[float, float, int]] = []  # weighted sum, weight, items
    shift = list(accumulate(distances, initial=0.0))[: len(row)]
    for (wish, weight), offset in zip(pulls, shift, strict=True):
        block = ((wish - offset) * weight, weight, 1)
        while blocks and blocks[-1][0] / blocks[-1][1] >= block[0] / block[1]:
            before = blocks.pop()
            block = (before[0] + block[0], before[1] + block[1], before[2] + block[2])
        blocks.append(block)
    at = 0
    for total, weight, count in blocks:
        for item, offset in zip(row[at : at + count], shift[at : at + count], strict=True):
            x[item] = total / weight + offset
        at += count
