"""The roofline chart: the rate of each kernel over its intensity, and the machine's peaks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracer.analyzers.advice import is_sure
from tracer.analyzers.grouping import by_node, row_names
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.roofline import CACHE, COMPUTE, FEWER, INT8, MEMORY, arithmetic
from tracer.analyzers.views.drawing import empty_figure, labels, plain
from tracer.analyzers.views.text import percent, plural, si
from tracer.analyzers.views.trace.headline import Section, headline, sections
from tracer.errors import UsageError
from tracer.records.environment import Peaks
from tracer.records.trace import Trace
from tracer.support.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    from matplotlib.text import Text

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
            label: Any = axes.annotate(
                text, (points.x[index], points.y[index]), offset, textcoords="offset points",
                ha="left" if offset[0] > 1 else "right" if offset[0] < -1 else "center",
                va="center", fontsize=7.5, zorder=5,
                arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#555555", "shrinkA": 0},
            )  # fmt: skip
            label.set_in_layout(False)
            label.get_window_extent()
            box = Text.get_window_extent(label).padded(2)
            inside = (
                axes.bbox.x0 <= box.x0
                and box.x1 <= axes.bbox.x1
                and axes.bbox.y0 <= box.y0
                and box.y1 <= axes.bbox.y1
            )
            if (inside and not any(box.overlaps(other) for other in taken)) and not _covers(
                box, centres, pixels
            ):
                taken.append(box)
                break
            label.remove()


def _offsets(least: float) -> Iterator[tuple[float, float]]:
    for radius in (least + more for more in _RADII):
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * (step + 1) / _DIRECTIONS
            yield radius * math.cos(angle), radius * math.sin(angle)


def _covers(box: Any, centres: FloatArray, radius: FloatArray) -> bool:
    """Returns whether a box overlaps a point; all in pixels."""
    across = (box.x0 - radius < centres[:, 0]) & (centres[:, 0] < box.x1 + radius)
    up = (box.y0 - radius < centres[:, 1]) & (centres[:, 1] < box.y1 + radius)
    return bool((across & up).any())


_LOOKS = {
    COMPUTE: ("#0072B2", "o", "bound by arithmetic"),
    MEMORY: ("#E69F00", "s", "bound by memory"),
    CACHE: ("#D55E00", "D", "data in a cache"),
    FEWER: ("#56B4E9", "v", "fewer operations than counted"),
    None: ("#777777", "^", "roof unknown"),
}
"""Colour, marker, meaning, in colours for colour-blind readers (Okabe and Ito, 2008)."""
_ROOF, _INT8_ROOF = "#222222", "#009E73"
_WIDTH, _HEIGHT = 9.0, 6.0
_TITLE_CHARACTERS = 105
_LEAST_AREA, _AREA_OF_ALL = 14.0, 1400.0
_FILLED = 0.65
_LABELS = 8
_LEGEND = "area: share of the time\nhollow: uncertain time"


def figure(trace: Trace, options: ViewOptions) -> Figure:
    """Returns a panel for each run, with a point for each kernel; its area is its share of time.

    `options.top` is the number of labels [default: 8]. Raises UsageError without times.
    """
    timed = [section for section in sections(trace) if section.run is not None]
    if not any(section.nodes["gflops_per_s"].notna().any() for section in timed):
        raise UsageError(
            "a roofline needs times and counts of work, and this trace lacks them",
            "Make one with: tracer profile MODEL.onnx -o roofline.png.",
        )
    chart = empty_figure(_WIDTH, _HEIGHT * len(timed))
    panels = chart.subplots(len(timed), squeeze=False)[:, 0]
    drawn = []
    for axes, section in zip(panels, timed, strict=True):
        title = textwrap.fill(plain(headline(trace, section)), _TITLE_CHARACTERS)
        axes.set_title(title, fontsize=10, loc="left")
        peaks = trace.environment.peaks_at(section.run.threads if section.run else None)
        drawn.append((axes, _draw(axes, section, peaks)))
    chart.draw_without_rendering()  # labels are placed where there is room, in pixels
    for axes, rows in drawn:
        points = Points(*(rows[name].to_numpy(float) for name in ("x", "y", "area")))
        named = rows.head(_LABELS if options.top is None else options.top or len(rows))
        pairs = zip(labels(row_names(named)), named["time_share"], strict=True)
        place_labels(axes, points, [f"{node} {percent(share)}" for node, share in pairs])
    return chart


def _draw(axes: Axes, section: Section, peaks: Peaks | None) -> pd.DataFrame:
    from matplotlib.colors import to_rgba

    rows, hidden = points(section.nodes)
    rows = rows.assign(area=_LEAST_AREA + _AREA_OF_ALL * rows["time_share"])
    axes.set_xscale("log")
    axes.set_yscale("log")
    for bound, (colour, marker, meaning) in _LOOKS.items():
        some = rows[rows["bound"].isna() if bound is None else rows["bound"] == bound]
        if len(some):
            axes.scatter(
                some["x"], some["y"], s=some["area"], marker=marker, edgecolors=colour, zorder=3,
                facecolors=[to_rgba(colour, _FILLED if sure else 0) for sure in some["sure"]],
                linewidths=0.9,
            )  # fmt: skip
            axes.scatter([], [], s=40, marker=marker, color=to_rgba(colour, _FILLED), label=meaning)
    integer = section.run is not None and any(arithmetic(k) == INT8 for k in section.run.kernels)
    if peaks is not None:
        _draw_roofs(axes, rows, peaks, integer)
    else:
        axes.margins(0.1)
    axes.set_xlabel("intensity [flop/byte]" + (f"\n{hidden}" if hidden else ""))
    axes.set_ylabel("GFLOP/s")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(which="major", color="#dddddd", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    legend = axes.legend(loc="lower right", fontsize=8, frameon=False, title=_LEGEND)
    legend.get_title().set_fontsize(8)
    return rows


def points(nodes: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Returns a row for each kernel that the chart can show, and a sentence on the others.

    `x` is the intensity in flop/byte, `y` the rate in 10⁹ flop/s; `sure` says whether the time is
    well above its uncertainty. The longest kernel is first.
    """
    rows = by_node(nodes)
    total = float(rows["time_us"].sum())
    shown = (rows["gflops_per_s"] > 0) & (rows["gbytes_per_s"] > 0)
    others = rows[~shown & rows["time_us"].notna()]
    rows = rows[shown].sort_values("time_us", ascending=False, kind="stable")
    rows = rows.assign(
        x=rows["gflops_per_s"] / rows["gbytes_per_s"],
        y=rows["gflops_per_s"],
        sure=is_sure(rows),
    )
    share = percent(float(others["time_us"].sum()) / total if total else 0.0)
    what = f"{plural(len(others), 'kernel')} without arithmetic, or too short to time"
    hidden = f"{what}, not shown ({share} of the time)"
    return rows, hidden if len(others) else ""


def _draw_roofs(axes: Axes, rows: pd.DataFrame, peaks: Peaks, integer: bool) -> None:
    """Draws the slope of memory and the ceilings of arithmetic, with their peaks."""
    slope, ceilings = peaks.memory.rate / 1e9, [(peaks.float32.rate / 1e9, "float32", _ROOF)]
    if integer and peaks.int8 is not None:
        ceilings.append((peaks.int8.rate / 1e9, "int8", _INT8_ROOF))
    top = max(ceiling for ceiling, _, _ in ceilings)
    ridge = top / slope
    left = min(
        [ridge / 30, *rows["x"] / 4]
    )  # leaves room for the names of the roofs beside the points
    right = max([ridge * 10, *rows["x"] * 4])
    low = min([left * slope, *rows["y"] / 2])
    high = 2.2 * max([top, *rows["y"]])
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.plot([left, ridge], [left * slope, top], color=_ROOF, linewidth=1.4, zorder=2)
    start = max(left, low / slope)
    axes.annotate(
        f"memory {si(peaks.memory.rate)}B/s", (start * 1.25, start * 1.25 * slope), (0, 4),
        textcoords="offset points", fontsize=8, rotation=_angle(axes), rotation_mode="anchor",
    )  # fmt: skip
    for ceiling, name, colour in ceilings:
        unit = "OP/s" if name == INT8 else "FLOP/s"
        axes.plot([ceiling / slope, right], [ceiling] * 2, color=colour, linewidth=1.4, zorder=2)
        axes.annotate(
            f"{name} {si(1e9 * ceiling)}{unit}", (right, ceiling), (-4, 4),
            textcoords="offset points", ha="right", fontsize=8, color=colour,
        )  # fmt: skip


def _angle(axes: Axes) -> float:
    """Returns the approximate angle of a line of slope 1, in degrees; limits must be set."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    across, up = math.log10(right / left), math.log10(high / low)
    return math.degrees(math.atan2(_HEIGHT / up, _WIDTH / across))
