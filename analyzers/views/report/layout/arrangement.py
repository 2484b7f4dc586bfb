"""The inside of a box: where its children stand, and how the links between them run."""

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from math import inf
from operator import itemgetter
from statistics import median

from tracer.analyzers.views.report.layout.hierarchy import OUTSIDE, Link

_WAYPOINTS, _WAYPOINTS_OF_A_CHILD = 400, 40
"""Most waypoints in a box. Where everything reads everything, the longest links have none."""
_EXIT = -2
"""The bundle of what goes outside; that of what comes from there is `OUTSIDE`."""


class Bands:
    """Rows of items: numbers of children, and after them those of waypoints.

    A child stands below all that it reads, a constant right above its first reader. The first and
    the last row are borders of the box, with a waypoint where links cross them. `band` counts the
    rows between, and `is_constant` tells which children follow from weights alone. `above` and
    `below` have the items of the next rows that an item is joined to, `routes` the waypoints of
    each link. Waypoints of a bundle carry the same data: those of one child, or all that enters or
    leaves the box.
    """

    def __init__(self, count: int, links: Collection[Link]) -> None:
        self.children = count
        self.band, self.is_constant = [0] * count, [True] * count
        ordered = sorted(links)
        for first, second in ordered:
            if OUTSIDE not in (first, second):
                self.band[second] = max(self.band[second], self.band[first] + 1)
            if first == OUTSIDE or not self.is_constant[first]:
                self.is_constant[second] = False
        for first, group in groupby(reversed(ordered), itemgetter(0)):
            readers = [self.band[second] for _, second in group if second != OUTSIDE]
            if first != OUTSIDE and self.is_constant[first] and readers:
                self.band[first] = min(readers) - 1
        self.rows: list[list[int]] = [[] for _ in range(max(self.band, default=0) + 3)]
        self.above: list[list[int]] = [[] for _ in range(count)]
        self.below: list[list[int]] = [[] for _ in range(count)]
        self.routes: dict[Link, list[int]] = {}
        self.bundles: dict[int, list[int]] = {}
        self._waypoints: dict[tuple[int, int], int] = {}
        for child, band in enumerate(self.band):
            self.rows[band + 1].append(child)
        self._route(links)

    def _route(self, links: Collection[Link]) -> None:
        """Adds the waypoints of links, the shortest links first, as far as there is room."""
        room = _WAYPOINTS + _WAYPOINTS_OF_A_CHILD * self.children
        spans = {}
        for source, target in links:
            first = 0 if source == OUTSIDE else self.band[source] + 2
            end = len(self.rows) if target == OUTSIDE else self.band[target] + 1
            spans[source, target] = range(first, end)
        for link, passed in sorted(spans.items(), key=lambda item: (len(item[1]), item[0])):
            room -= len(passed)
            if room < 0:
                break
            bundle = _EXIT if link[1] == OUTSIDE else link[0]
            route = self.routes[link] = []
            for row in passed:
                item = self._waypoints.setdefault((bundle, row), len(self.above))
                if item == len(self.above):
                    self.above.append([])
                    self.below.append([])
                    self.rows[row].append(item)
                    if 0 < row < len(self.rows) - 1:
                        self.bundles.setdefault(bundle, []).append(item)
                route.append(item)
            for upper, lower in pairwise([*link[:1], *route, *link[1:]]):
                if OUTSIDE not in (upper, lower) and lower not in self.below[upper]:
                    self.below[upper].append(lower)
                    self.above[lower].append(upper)


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


_MARGIN = 16
"""Pixels between the border of a box and what is inside."""
_GAP = 24
"""Pixels between bands, in which links bend."""

Size = tuple[int, int]
"""Width and height, pixels."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The band and the upper left corner of each child, the waypoints (x, y) of each link.

    Pixels from the upper left corner of the inside, which has the size `size`.
    """

    band: list[int]
    corners: list[tuple[int, int]]
    points: dict[Link, list[tuple[int, int]]]
    size: Size


def arranged(sizes: Sequence[Size], links: Collection[Link]) -> Arrangement:
    """Places boxes of these sizes, which are sorted: none reads a later one."""
    if not sizes:
        return Arrangement([], [], {}, (0, 0))
    bands = Bands(len(sizes), links)
    rows = ordered(bands)
    widths = [width for width, _ in sizes]
    middle = [round(x, 2) for x in centres(bands, rows, widths)]  # equal ones must stay equal
    reach = [*widths, *[0] * (len(middle) - len(widths))]
    edge = min(x - width / 2 for x, width in zip(middle, reach, strict=True)) - _MARGIN
    left = [round(x - width / 2 - edge) for x, width in zip(middle, reach, strict=True)]
    heights = [max((sizes[i][1] for i in row if i < len(sizes)), default=0) for row in rows]
    tops = list(accumulate((height + _GAP for height in heights[:-1]), initial=0))
    row_of = {item: number for number, row in enumerate(rows) for item in row}
    points = {
        link: [(left[item], tops[row_of[item]] + heights[row_of[item]] // 2) for item in route]
        for link, route in bands.routes.items()
    }
    right = max(x + width for x, width in zip(left, reach, strict=True))
    return Arrangement(
        band=bands.band,
        corners=[(left[child], tops[row_of[child]]) for child in range(len(sizes))],
        points=points | {link: [] for link in links if link not in points},
        size=(right + _MARGIN, tops[-1]),
    )
