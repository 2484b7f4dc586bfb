"""Place labels of points in a chart so that they overlap neither each other nor a point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.support.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_RADII = (8, 18, 32, 50, 72, 98, 128, 164)
_DIRECTIONS = 16
_POINTS_PER_INCH = 72


@dataclass(frozen=True)
class Points:
    """Points of a chart and the area of their markers, in square points of the page."""

    x: FloatArray
    y: FloatArray
    area: FloatArray

    def radius(self, index: int) -> float:
        """The radius of a marker, in points of the page."""
        return math.sqrt(self.area[index]) / 2


def place_labels(axes: Axes, points: Points, texts: Sequence[str]) -> None:
    """Draws `texts` beside the first points, each with a line to its point.

    A label overlaps no other text and no point; a label without room is omitted. The figure must
    have its final layout.
    """
    if not texts:
        return
    centres = axes.transData.transform(np.column_stack([points.x, points.y]))
    pixels = np.sqrt(points.area) / 2 * axes.figure.dpi / _POINTS_PER_INCH
    taken = [text.get_window_extent() for text in axes.texts]
    legend = axes.get_legend()
    if legend is not None:
        taken.append(legend.get_window_extent())
    for index, text in enumerate(texts):
        for offset in _offsets(points.radius(index)):
            label = _draw(axes, text, (points.x[index], points.y[index]), offset)
            label.set_in_layout(False)
            box = _text_box(label)
            if _is_free(box, axes.bbox, taken) and not _covers(box, centres, pixels):
                taken.append(box)
                break
            label.remove()


def _offsets(least: float) -> Iterator[tuple[float, float]]:
    for radius in (least + more for more in _RADII):
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * (step + 1) / _DIRECTIONS
            yield radius * math.cos(angle), radius * math.sin(angle)


def _draw(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float]) -> Any:
    return axes.annotate(
        text, point, offset, textcoords="offset points", fontsize=7.5,
        ha="left" if offset[0] > 1 else "right" if offset[0] < -1 else "center", va="center",
        zorder=5,
        arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#555555", "shrinkA": 0},
    )  # fmt: skip


def _text_box(label: Any) -> Any:
    from matplotlib.text import Text

    label.get_window_extent()  # computes the position, including the line
    return Text.get_window_extent(label).padded(2)


def _is_free(box: Any, page: Any, taken: Sequence[Any]) -> bool:
    inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
    return inside and not any(box.overlaps(other) for other in taken)


def _covers(box: Any, centres: FloatArray, radius: FloatArray) -> bool:
    """Returns whether a box overlaps a point; all in pixels."""
    across = (box.x0 - radius < centres[:, 0]) & (centres[:, 0] < box.x1 + radius)
    up = (box.y0 - radius < centres[:, 1]) & (centres[:, 1] < box.y1 + radius)
    return bool((across & up).any())
