"""Which items are to be in one vertical line."""

from collections.abc import Iterator, Sequence
from math import inf
from statistics import median

from tracer.analyzers.views.report.layout.bands import Bands
from tracer.analyzers.views.report.layout.order import Rows


def lines(bands: Bands, rows: Rows) -> tuple[dict[int, int], dict[int, int]]:
    """Returns the item above, and the item below, that each item is to be in line with.

    An item is in line with the next one of its kind on the longest way, if that is mutual. A point
    on the border is like a child. Constants stand beside the line.
    """
    depth, height = [0] * len(bands.above), [0] * len(bands.above)
    for row in rows:
        for item in row:
            depth[item] = max((depth[other] + 1 for other in bands.above[item]), default=0)
    for row in reversed(rows):
        for item in row:
            height[item] = max((height[other] + 1 for other in bands.below[item]), default=0)

    waypoints = {item for items in bands.bundles.values() for item in items}

    def worth(item: int, other: int, length: Sequence[int]) -> tuple[bool, bool, int]:
        is_constant = other < bands.children and bands.is_constant[other]
        return not is_constant, (item in waypoints) == (other in waypoints), length[other]

    def chosen(joined: Sequence[int], item: int, length: Sequence[int]) -> int | None:
        if len(joined) < 2:
            return joined[0] if joined else None
        worths = {other: worth(item, other, length) for other in sorted(joined)}
        best = max(worths.values())
        equal = [other for other, its in worths.items() if its == best]
        return equal[len(equal) // 2]

    above = {item: chosen(joined, item, depth) for item, joined in enumerate(bands.above)}
    below = {item: chosen(joined, item, height) for item, joined in enumerate(bands.below)}
    lines = [(a, b) for a, b in below.items() if b is not None and above[b] == a]
    return {b: a for a, b in lines}, dict(lines)


def straightened(
    bands: Bands, rows: Rows, distances: Sequence[Sequence[float]], x: Sequence[float]
) -> dict[int, float]:
    """Returns where the waypoints of each bundle are in one line, as far as children leave room."""
    room = [(-inf, inf)] * len(x)
    order = [0] * len(x)
    mirrored = [-each for each in x]
    for number, (row, apart) in enumerate(zip(rows, distances, strict=True)):
        highs = list(_least(row[::-1], apart[::-1], bands.children, mirrored))
        lows = _least(row, apart, bands.children, x)
        for item, low, high in zip(row, lows, reversed(highs), strict=True):
            room[item], order[item] = (low, -high), number
    wanted: dict[int, float] = {}
    for items in bands.bundles.values():
        items.sort(key=order.__getitem__)
        for straight, (low, high) in _parts(items, room):
            place = min(max(median(x[item] for item in straight), low), high)
            wanted |= dict.fromkeys(straight, place)
    return wanted


def _least(
    row: Sequence[int], distances: Sequence[float], children: int, x: Sequence[float]
) -> Iterator[float]:
    """Yields how far to the left each item of a row can stand; children stay where they are."""
    least = -inf
    for item, distance in zip(row, (0.0, *distances), strict=False):
        least = x[item] if item < children else least + distance
        yield least


def _parts(
    items: Sequence[int], room: Sequence[tuple[float, float]]
) -> Iterator[tuple[list[int], tuple[float, float]]]:
    """Yields the longest parts of a bundle that fit in one line, and where they fit."""
    part: list[int] = []
    low, high = -inf, inf
    for item in items:
        if part and max(low, room[item][0]) > min(high, room[item][1]):
            yield part, (low, high)
            part, low, high = [], -inf, inf
        part.append(item)
        low, high = max(low, room[item][0]), min(high, room[item][1])
    yield part, (low, high)
