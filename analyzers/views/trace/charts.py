"""The charts of a trace: the longest rows, the sums of each node, and the roofline of kernels."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracer.accumulators.statistics.partial_sums import PartialSums, bin_edges
from tracer.analyzers.advice import is_sure
from tracer.analyzers.grouping import by_node, row_names
from tracer.analyzers.options import CHART_TOP, NAMES, ViewOptions
from tracer.analyzers.overflow import bits_observed, widest
from tracer.analyzers.roofline import CACHE, COMPUTE, FEWER, INT8, MEMORY, shown_peaks
from tracer.analyzers.views import drawing
from tracer.analyzers.views.text import micros, percent, plural, si
from tracer.analyzers.views.trace.headline import Section, folded, headline, ordered, sections
from tracer.errors import UsageError
from tracer.records.environment import Peak, Peaks
from tracer.records.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LABELS = 80
_MOST_BARS = 2_000
"""More are thinner than a pixel, and are drawn as lines: matplotlib takes 5 ms for a bar."""
_ALIKE = 0.9
"""A row of so much of another's length is as long, as far as one can see."""

_MOST_OF_ALL = 0.5
_BAR_INCHES, _TALLEST_INCHES = 0.22, 8.0


def figure(trace: Trace, options: ViewOptions) -> Figure:
    """The time of each layer; if the times are of emulated accumulators, their histograms."""
    if all(section.run is not None and section.run.sums for section in sections(trace)):
        return sums(trace, options)
    return times_figure(trace, options)


def times_figure(trace: Trace, options: ViewOptions) -> Figure:
    """A panel for each run, the longest row first.

    `options.top` is the number of bars with names [default: 15, 0: all]; a line below tells of the
    others. Bars at or above `options.threshold` µs are red; without one, and where MACs are drawn
    because nothing was timed, the longest rows, which together make up half of all or more.
    """
    drawn = sections(trace)
    panels = [_bars(section, options) for section in drawn]
    counts = [len(bars.lengths) for bars in panels]
    # a panel reaches to its title and the lines below it
    heights = [1.5 + (_BAR_INCHES * n if n <= _MOST_LABELS else _TALLEST_INCHES) for n in counts]
    chart = drawing.empty_figure(_WIDTH, sum(heights))
    axes = chart.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for panel, section, bars in zip(axes, drawn, panels, strict=True):
        lines = textwrap.fill(drawing.plain(headline(trace, section)), _TITLE_CHARACTERS)
        panel.set_title(lines, fontsize=10, loc="left", pad=20 if any(bars.red) else 6)
        _draw_bars(panel, bars)
        below = [bars.rest_text, bars.remark]
        for line, text in enumerate(filter(None, below)):
            panel.annotate(text, (0, 0), (0, -36 - 13 * line), "axes fraction", "offset points",
                           fontsize=8, color="#555555", va="top")  # fmt: skip
    return chart


def _draw_bars(panel: Axes, bars: _Bars) -> None:
    from matplotlib.patches import Patch

    positions, lengths = range(len(bars.lengths)), bars.lengths
    colors = [drawing.HIGH if red else drawing.PLAIN for red in bars.red]
    if len(lengths) <= _MOST_BARS:
        drawn = panel.barh(positions, lengths, color=colors, height=0.8)
    else:
        panel.hlines(positions, 0, lengths, colors=colors, linewidth=1)
    if bars.threshold is not None and any(bars.red):
        amount = bars.amount(bars.threshold)
        panel.axvline(bars.threshold, color=drawing.HIGH, linewidth=0.8, linestyle="--")
        panel.legend(
            [Patch(color=drawing.HIGH)], [f"red: ≥ {amount}{bars.meaning}"], loc="lower left",
            bbox_to_anchor=(0, 1), borderaxespad=0.1, handlelength=1, fontsize=8,
            labelcolor=drawing.HIGH, frameon=False,
        )  # fmt: skip
    panel.set_xlabel(
        "time per run [µs]" if bars.is_time else "MACs per run", loc="left", fontsize=9
    )
    if not bars.is_time:
        panel.xaxis.set_major_formatter(lambda value, _: si(value))
    panel.margins(y=0.01)
    panel.set_xlim(0, 1.12 * lengths.max() if lengths.any() else max(bars.threshold or 0, 1))
    panel.invert_yaxis()
    panel.spines[["top", "right"]].set_visible(False)
    if len(lengths) <= _MOST_LABELS:
        panel.set_yticks(positions, bars.names, fontsize=8)
        texts = [micros(value) if bars.is_time else si(value) for value in lengths]
        panel.bar_label(drawn, texts, padding=3, fontsize=8)
    else:
        panel.set_yticks([])
        panel.set_ylabel(f"{len(lengths):,} rows, the longest first")


@dataclass(frozen=True, slots=True)
class _Bars:
    """Bars with their names and a remark on these, and the length from which on one is red.

    `meaning` says why a bar is red, `rest_text` what all other rows hold.
    """

    names: Sequence[str]
    remark: str
    lengths: pd.Series[float]
    is_time: bool
    rest_text: str
    threshold: float | None
    meaning: str

    @property
    def red(self) -> Sequence[bool]:
        """Whether each bar is red."""
        level = float("inf") if self.threshold is None else self.threshold
        return [value >= level for value in self.lengths]

    def amount(self, value: float) -> str:
        """A length with its unit."""
        return f"{micros(value)} µs" if self.is_time else f"{si(value)} MACs"


def _bars(section: Section, options: ViewOptions) -> _Bars:
    rows = folded(section, options)
    timed = bool(rows["time_us"].notna().any())
    rows["value"] = rows["time_us"] if timed else rows["macs"]
    rows = rows[rows["value"].notna()].astype({"value": "float64"})
    top = CHART_TOP if options.top is None else options.top
    kept = rows if not top else rows.loc[ordered(rows, options).head(top).index]
    kept = kept.sort_values("value", ascending=False, kind="stable")
    rest, total = rows.drop(kept.index)["value"], float(rows["value"].sum())
    bars = _Bars(*drawing.labels_and_folders(kept[NAMES[options.by]]), kept["value"], timed, "",
                 *_threshold(rows["value"], options, timed))  # fmt: skip
    if rest.empty:
        return bars
    share = percent(float(rest.sum()) / total if total else 0.0)
    what = f"{plural(len(rest), 'more row')}: {bars.amount(rest.sum())}, {share} of all"
    return replace(bars, rest_text=what)


def _threshold(
    values: pd.Series[float], options: ViewOptions, timed: bool
) -> tuple[float | None, str]:
    """Returns the value from which bars are red, and why; None if no row stands out.

    These are the longest rows, as many as make up half of the total, and all that are about as
    long; they stand out if they are less than half of the rows above 0.
    """
    if timed and options.threshold is not None:
        return options.threshold, ""
    longest = values[values > 0].sort_values(ascending=False)
    before = longest.cumsum() - longest
    half = longest[before < _MOST_OF_ALL * longest.sum()]
    red = longest[longest >= _ALIKE * half.min()]
    if 2 * len(red) >= len(longest):
        return None, ""
    what = f"{len(red):,} rows hold" if len(red) > 1 else "1 row holds"
    share = f"{red.sum() / longest.sum():.0%} of the {'time' if timed else 'MACs'}"
    return float(red.iloc[-1]), f": {what} {share}"


_COLUMNS = 3
_PANEL_INCHES = 4.2, 2.5
_HEAD_INCHES = 0.7


def sums(trace: Trace, options: ViewOptions) -> Figure:
    """Returns a panel for each node in the order of the run: final sums, extremes of partial sums.

    The background beyond the accumulator's range is red. `options.top` is the number of nodes
    [default: 15]; nodes that need the most bits are drawn. Raises UsageError without
    sums.
    """
    all_sums = [of_node for run in trace.runs for of_node in run.sums]
    if not all_sums:
        raise UsageError(
            "histograms of sums need integer accumulators, and this trace has none",
            "Make one with: tracer interpret MODEL.onnx --accumulator BITS -o sums.png.",
        )
    drawn = widest(all_sums, CHART_TOP if options.top is None else options.top)
    columns = min(_COLUMNS, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    width, height = _PANEL_INCHES
    chart = drawing.empty_figure(max(width * columns, 6.0), height * rows + _HEAD_INCHES)
    panels = chart.subplots(rows, columns, squeeze=False).ravel()
    names = drawing.labels(each.node for each in drawn)
    for panel, name, each in zip(panels, names, drawn, strict=False):
        _draw_sums(panel, name, each)
    for panel in panels[::columns]:
        panel.set_ylabel("outputs", fontsize=8)
    for panel in panels[len(drawn) :]:
        panel.set_axis_off()
    some = "" if len(drawn) == len(all_sums) else f" · {len(drawn)} of {len(all_sums)} nodes"
    title = drawing.plain(f"{trace.model.name} · partial sums{some}")
    chart.suptitle(title, x=0.01, ha="left", fontsize=10)
    chart.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=3,
                fontsize=8, frameon=False)  # fmt: skip
    return chart


def _draw_sums(axes: Axes, name: str, sums: PartialSums) -> None:
    tally = sums.tally
    low, high = tally.accumulator.range
    extremes = tally.low_histogram + tally.high_histogram
    counts = tally.final_histogram + extremes
    filled = np.flatnonzero(counts)
    ends = np.searchsorted(bin_edges(), [low, high + 1])
    first = min([ends[0] - 1, *filled[:1]])
    last = max([ends[1] + 1, *(filled[-1:] + 1)])
    shown = slice(max(int(first), 0), min(int(last), len(counts)))
    bins = bin_edges()[shown.start : shown.stop + 1]
    axes.set_xscale("symlog", base=2, linthresh=drawing.LINEAR)
    axes.stairs(
        tally.final_histogram[shown], bins, fill=True, color=drawing.PLAIN, label="final sums"
    )
    axes.stairs(extremes[shown], bins, color=drawing.EXTREMES, linewidth=1.1,
                label="lowest and highest partial sums")  # fmt: skip
    left, right = float(bins[0]), float(bins[-1])
    for outside, meaning in (
        ((min(left, low), low), "beyond the accumulator"),
        ((high + 1, max(right, high + 1)), None),
    ):
        axes.axvspan(*outside, label=meaning, facecolor=drawing.HIGH, alpha=0.14, linewidth=0)
    for end in (low, high + 1):
        axes.axvline(end, color=drawing.HIGH, linewidth=0.9, linestyle="--")
    axes.set_xlim(left, right)
    if extremes.any():
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
    most = math.log2(max(-left, right, 2 * drawing.LINEAR))
    step = 4 * math.ceil(most / 16)
    powers = range(step, math.floor(most) + 1, step)
    marks = [(0.0, "0")]
    marks += [(2.0**p, f"$2^{{{p}}}$") for p in powers]
    marks += [(-(2.0**p), f"$-2^{{{p}}}$") for p in powers]
    visible = [mark for mark in marks if left <= mark[0] <= right]
    axes.set_xticks(*([position for position, _ in visible], [label for _, label in visible]))
    axes.minorticks_off()
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    at_width = tally.overflow()
    outputs, over = int(at_width.outputs.sum()), int(at_width.overflow_outputs.sum())
    counted = f"{over:,} of {outputs:,} overflow" if outputs else "no output"
    widths = f"{bits_observed(sums)} observed"
    if sums.guaranteed is not None:
        widths += f", {sums.guaranteed} guaranteed"
    title = f"{name}\n{tally.accumulator.bits} bits: {counted}; {widths}"
    axes.set_title(title, fontsize=8, loc="left")


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
_MOST_NAMED = 8
_LEGEND = "area: share of the time\nhollow: uncertain time"


@drawing.accept_boxes()
def roofline(trace: Trace, options: ViewOptions) -> Figure:
    """Returns a panel for each run, with a point for each kernel; its area is its share of time.

    `options.top` is the number of labels [default: 8]. Raises UsageError without times.
    """
    timed = [section for section in sections(trace) if section.run is not None]
    if not any(section.nodes[["time_us", "flops"]].notna().all(axis=1).any() for section in timed):
        raise UsageError(
            "a roofline needs times and counts of work, and this trace lacks them",
            "Make one with: tracer profile MODEL.onnx -o roofline.png.",
        )
    chart = drawing.empty_figure(_WIDTH, _HEIGHT * len(timed))
    panels = chart.subplots(len(timed), squeeze=False)[:, 0]
    drawn = []
    for axes, section in zip(panels, timed, strict=True):
        title = textwrap.fill(drawing.plain(headline(trace, section)), _TITLE_CHARACTERS)
        axes.set_title(title, fontsize=10, loc="left")
        peaks = trace.environment.peaks_at(section.run.threads if section.run else None)
        drawn.append((axes, _draw_roofline(axes, section, peaks)))
    chart.draw_without_rendering()  # labels are placed where there is room, in pixels
    for axes, rows in drawn:
        named = rows.head(_MOST_NAMED if options.top is None else options.top or len(rows))
        pairs = zip(drawing.labels(row_names(named)), named["time_share"], strict=True)
        place_labels(axes, rows, [f"{node} {percent(share)}" for node, share in pairs])
    return chart


def _draw_roofline(axes: Axes, section: Section, peaks: Peaks | None) -> pd.DataFrame:
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
    if peaks is not None:
        _draw_roofs(axes, rows, peaks.memory, shown_peaks(peaks, section.run))
    else:
        axes.margins(0.1)
    axes.set_xlabel("intensity [flop/byte]" + (f"\n{hidden}" if hidden else ""))
    axes.set_ylabel("GFLOP/s")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(which="major", color="#dddddd", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    if len(rows):
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


def _draw_roofs(
    axes: Axes, rows: pd.DataFrame, memory: Peak, arithmetic: Mapping[str, Peak]
) -> None:
    """Draws the slope of memory and the ceilings of arithmetic, with their peaks."""
    slope = memory.rate / 1e9
    ceilings = [
        (peak.rate / 1e9, kind, _INT8_ROOF if kind == INT8 else _ROOF)
        for kind, peak in arithmetic.items()
    ]
    top = max(ceiling for ceiling, _, _ in ceilings)
    ridge = top / slope
    left = min([ridge / 30, *rows["x"] / 4])  # leaves room for the names of the roofs
    right = max([ridge * 10, *rows["x"] * 4])
    low = min([left * slope, *rows["y"] / 2])
    high = 2.2 * max([top, *rows["y"]])
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.plot([left, ridge], [left * slope, top], color=_ROOF, linewidth=1.4, zorder=2)
    start = max(left, low / slope)
    # the approximate angle of a line of slope 1 between these limits
    across, up = math.log10(right / left), math.log10(high / low)
    angle = math.degrees(math.atan2(_HEIGHT / up, _WIDTH / across))
    axes.annotate(
        f"memory {si(memory.rate)}B/s", (start * 1.25, start * 1.25 * slope), (0, 4),
        textcoords="offset points", fontsize=8, rotation=angle, rotation_mode="anchor",
    )  # fmt: skip
    for ceiling, name, colour in ceilings:
        unit = "OP/s" if name == INT8 else "FLOP/s"
        axes.plot([ceiling / slope, right], [ceiling] * 2, color=colour, linewidth=1.4, zorder=2)
        axes.annotate(
            f"{name} {si(1e9 * ceiling)}{unit}", (right, ceiling), (-4, 4),
            textcoords="offset points", ha="right", fontsize=8, color=colour,
        )  # fmt: skip


_RADII = (8, 18, 32, 50, 72, 98, 128, 164)
_ANGLES = tuple(2 * math.pi * step / 16 for step in range(1, 17))
_POINTS_PER_INCH = 72


def place_labels(axes: Axes, rows: pd.DataFrame, texts: Sequence[str]) -> None:
    """Draws `texts` beside the first points, each with a line to its point.

    `rows` have `x` and `y` of the points, and the `area` of their markers in square points of the
    page. A label overlaps no other text and no point; a label without room is omitted. The figure
    must have its final layout.
    """
    from matplotlib.text import Text

    if not texts:
        return
    points = rows[["x", "y"]].to_numpy(float)
    centres = axes.transData.transform(points)
    markers = np.sqrt(rows["area"].to_numpy(float)) / 2  # their radii, in points of the page
    pixels = markers * axes.figure.dpi / _POINTS_PER_INCH
    taken = [text.get_window_extent() for text in axes.texts]
    legend = axes.get_legend()
    if legend is not None:
        taken.append(legend.get_window_extent())
    for index, text in enumerate(texts):
        radii = [float(markers[index]) + more for more in _RADII]
        for offset in ((r * math.cos(a), r * math.sin(a)) for r in radii for a in _ANGLES):
            label: Any = axes.annotate(
                text, points[index], offset, textcoords="offset points",
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
            across = (box.x0 - pixels < centres[:, 0]) & (centres[:, 0] < box.x1 + pixels)
            up = (box.y0 - pixels < centres[:, 1]) & (centres[:, 1] < box.y1 + pixels)
            is_free = not any(box.overlaps(other) for other in taken)
            if inside and is_free and not (across & up).any():
                taken.append(box)
                break
            label.remove()
