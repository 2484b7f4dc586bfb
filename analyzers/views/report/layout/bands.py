"""The bands of a box: its children from above to below, and waypoints where links pass them."""

from collections.abc import Collection
from itertools import groupby, pairwise
from operator import itemgetter

from tracer.analyzers.views.report.layout.box import OUTSIDE, Link

_WAYPOINTS, _WAYPOINTS_OF_A_CHILD = 400, 40
"""Most waypoints in a box. Where everything reads everything, the longest links have none."""
ENTRY, EXIT = -1, -2
"""The bundle of what comes from outside, and that of what goes there."""


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
        self.band, self.is_constant = _ranks(count, links)
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
        spans = {link: self._span(link) for link in links}
        for link, passed in sorted(spans.items(), key=lambda item: (len(item[1]), item[0])):
            room -= len(passed)
            if room < 0:
                break
            bundle = EXIT if link[1] == OUTSIDE else link[0]
            route = self.routes[link] = [self._waypoint(bundle, row) for row in passed]
            for first, second in pairwise([*link[:1], *route, *link[1:]]):
                self._join(first, second)

    def _span(self, link: Link) -> range:
        """The rows in which a link has waypoints."""
        source, target = link
        first = 0 if source == OUTSIDE else self.band[source] + 2
        end = len(self.rows) if target == OUTSIDE else self.band[target] + 1
        return range(first, end)

    def _waypoint(self, bundle: int, row: int) -> int:
        item = self._waypoints.setdefault((bundle, row), len(self.above))
        if item == len(self.above):
            self.above.append([])
            self.below.append([])
            self.rows[row].append(item)
            if 0 < row < len(self.rows) - 1:
                self.bundles.setdefault(bundle, []).append(item)
        return item

    def _join(self, first: int, second: int) -> None:
        if OUTSIDE not in (first, second) and second not in self.below[first]:
            self.below[first].append(second)
            self.above[second].append(first)


def _ranks(count: int, links: Collection[Link]) -> tuple[list[int], list[bool]]:
    """Returns the band of each child by the longest way to it, and whether it is constant."""
    band = [0] * count
    is_constant = [True] * count
    ordered = sorted(links)
    for first, second in ordered:
        if OUTSIDE not in (first, second):
            band[second] = max(band[second], band[first] + 1)
        if first == OUTSIDE or not is_constant[first]:
            is_constant[second] = False
    for first, group in groupby(reversed(ordered), itemgetter(0)):
        readers = [band[second] for _, second in group if second != OUTSIDE]
        if first != OUTSIDE and is_constant[first] and readers:
            band[first] = min(readers) - 1
    return band, is_constant
