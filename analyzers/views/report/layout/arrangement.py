"""The inside of a box: where its children stand, and how the links between them run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tracer.analyzers.views.report.layout.bands import Bands
from tracer.analyzers.views.report.layout.box import Link
from tracer.analyzers.views.report.layout.coordinates import centres
from tracer.analyzers.views.report.layout.order import ordered

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
    tops, heights = _vertical(rows, sizes)
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


def _vertical(rows: Sequence[Sequence[int]], sizes: Sequence[Size]) -> tuple[list[int], list[int]]:
    """Returns the top and the height of each row; the first and the last are borders."""
    heights = [max((sizes[i][1] for i in row if i < len(sizes)), default=0) for row in rows]
    tops = [0]
    for height in heights[:-1]:
        tops.append(tops[-1] + height + _GAP)
    return tops, heights
