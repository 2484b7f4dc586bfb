"""The charts of a trace: bars of the longest rows, and histograms of the sums of each node."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracer.accumulators.statistics.partial_sums import PartialSums, bin_edges
from tracer.analyzers.options import CHART_TOP, NAMES, ViewOptions
from tracer.analyzers.overflow import bits_observed, widest
from tracer.analyzers.views.drawing import (
    EXTREMES,
    HIGH,
    LINEAR,
    OTHERS,
    PLAIN,
    empty_figure,
    labels,
    labels_and_folders,
    plain,
)
from tracer.analyzers.views.text import micros, si
from tracer.analyzers.views.trace.headline import Section, folded, headline, ordered, sections
from tracer.errors import UsageError
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
_TITLE_CHARACTERS_PER_INCH = 10


def times_figure(trace: Trace, options: ViewOptions) -> Figure:
    """A panel for each run.

    `options.top` is the number of bars with names [default: 15, 0: all]; one more sums the rest.
    Bars at or above `options.threshold` µs are red; without one, and where MACs are drawn because
    nothing was timed, the longest rows, which together make up half of all or more.
    """
    drawn = sections(trace)
    panels = [_bars(section, options) for section in drawn]
    width = min(max(8.0, 0.22 * max(len(bars.names) for bars in panels) + 2), 24.0)
    chart = empty_figure(width, 4.6 * len(panels))
    axes = chart.subplots(len(panels), squeeze=False)[:, 0]
    for panel, section, bars in zip(axes, drawn, panels, strict=True):
        title = plain(headline(trace, section))
        lines = textwrap.fill(title, int(width * _TITLE_CHARACTERS_PER_INCH))
        panel.set_title(lines, fontsize=10, loc="left", pad=18)
        _draw_panel(panel, bars)
    return chart


@dataclass(frozen=True, slots=True)
class _Bars:
    """Bars with their names and a remark on these, and the height from which on one is red.

    `meaning` says why a bar is red. The last bar is the sum of `rest` more rows, if there are any.
    """

    names: Sequence[str]
    remark: str
    heights: pd.Series[float]
    is_time: bool
    rest: int
    threshold: float | None
    meaning: str

    @property
    def red(self) -> Sequence[bool]:
        """Whether each bar is red; the sum of the rest never is."""
        single = len(self.heights) - bool(self.rest)
        level = float("inf") if self.threshold is None else self.threshold
        return [at < single and value >= level for at, value in enumerate(self.heights)]


def _bars(section: Section, options: ViewOptions) -> _Bars:
    rows = folded(section, options)
    timed = bool(rows["time_us"].notna().any())
    rows["value"] = rows["time_us"] if timed else rows["macs"]
    rows = rows[rows["value"].notna()].astype({"value": "float64"})
    top = CHART_TOP if options.top is None else options.top
    kept = rows
    if top and len(rows) > top:
        kept = rows.loc[ordered(rows, options).head(top).index].sort_index()
    rest = rows.drop(kept.index)
    names, remark = labels_and_folders(kept[NAMES[options.by]])
    heights = kept["value"]
    if len(rest):
        names = [*names, f"{len(rest):,} more"]
        heights = pd.concat([heights, pd.Series([rest["value"].sum()])])
    return _Bars(
        names, remark, heights, timed, len(rest), *_threshold(rows["value"], options, timed)
    )


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


def _draw_panel(axes: Any, bars: _Bars) -> None:
    positions, heights = range(len(bars.names)), bars.heights
    colors = [HIGH if red else PLAIN for red in bars.red]
    if bars.rest:
        colors[-1] = OTHERS
    if len(heights) <= _MOST_BARS:
        axes.bar(positions, heights, color=colors, width=0.8)
    else:
        axes.vlines(positions, 0, heights, colors=colors, linewidth=1)
    if bars.threshold is not None:
        axes.axhline(bars.threshold, color=HIGH, linewidth=0.8, linestyle="--")
        amount = f"{micros(bars.threshold)} µs" if bars.is_time else f"{si(bars.threshold)} MACs"
        axes.annotate(
            f"red: ≥ {amount}{bars.meaning}", (0, 1), (0, 5), "axes fraction", "offset points",
            fontsize=8, color=HIGH,
        )  # fmt: skip
    axes.set_ylabel("time per run [µs]" if bars.is_time else "MACs")
    if not bars.is_time:
        axes.yaxis.set_major_formatter(lambda value, _: si(value))
    axes.margins(x=0.01)
    axes.set_ylim(bottom=0, top=None if heights.any() or bars.threshold else 1)
    axes.spines[["top", "right"]].set_visible(False)
    if len(heights) <= _MOST_LABELS:
        axes.set_xticks(positions, bars.names, rotation=90, fontsize=7)
        axes.set_xlabel(bars.remark, fontsize=7)
    else:
        axes.set_xlabel(f"{len(heights):,} rows in the order of the graph")


_COLUMNS = 3
_PANEL_INCHES = 4.2, 2.5
_HEAD_INCHES = 0.7


def sums_figure(trace: Trace, options: ViewOptions) -> Figure:
    """Returns a panel for each node in the order of the run: final sums, extremes of partial sums.

    The background beyond the accumulator's range is red. `options.top` is the number of nodes
    [default: 15]; nodes that need the most bits are drawn. Raises UsageError without
    sums.
    """
    all_sums = [sums for run in trace.runs for sums in run.sums]
    if not all_sums:
        raise UsageError(
            "histograms of sums need integer accumulators, and this trace has none",
            "Make one with: tracer interpret MODEL.onnx --accumulator BITS -o sums.png.",
        )
    drawn = widest(all_sums, CHART_TOP if options.top is None else options.top)
    columns = min(_COLUMNS, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    width, height = _PANEL_INCHES
    chart = empty_figure(max(width * columns, 6.0), height * rows + _HEAD_INCHES)
    panels = chart.subplots(rows, columns, squeeze=False).ravel()
    names = labels(sums.node for sums in drawn)
    for panel, name, sums in zip(panels, names, drawn, strict=False):
        _draw(panel, name, sums)
    for panel in panels[::columns]:
        panel.set_ylabel("outputs", fontsize=8)
    for panel in panels[len(drawn) :]:
        panel.set_axis_off()
    some = "" if len(drawn) == len(all_sums) else f" · {len(drawn)} of {len(all_sums)} nodes"
    title = plain(f"{trace.model.name} · partial sums{some}")
    chart.suptitle(title, x=0.01, ha="left", fontsize=10)
    chart.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=3,
                fontsize=8, frameon=False)  # fmt: skip
    return chart


def _draw(axes: Axes, name: str, sums: PartialSums) -> None:
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
    axes.set_xscale("symlog", base=2, linthresh=LINEAR)
    axes.stairs(tally.final_histogram[shown], bins, fill=True, color=PLAIN, label="final sums")
    axes.stairs(extremes[shown], bins, color=EXTREMES, linewidth=1.1,
                label="lowest and highest partial sums")  # fmt: skip
    left, right = float(bins[0]), float(bins[-1])
    for outside, meaning in (
        ((min(left, low), low), "beyond the accumulator"),
        ((high + 1, max(right, high + 1)), None),
    ):
        axes.axvspan(*outside, label=meaning, facecolor=HIGH, alpha=0.14, linewidth=0)
    for end in (low, high + 1):
        axes.axvline(end, color=HIGH, linewidth=0.9, linestyle="--")
    axes.set_xlim(left, right)
    if extremes.any():
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
    most = math.log2(max(-left, right, 2 * LINEAR))
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
    axes.set_title(_title(name, sums), fontsize=8, loc="left")


def _title(name: str, sums: PartialSums) -> str:
    tally = sums.tally
    counts = tally.overflow(tally.accumulator.bits)
    outputs, over = int(counts.outputs.sum()), int(counts.overflow_outputs.sum())
    counted = f"{over:,} of {outputs:,} overflow" if outputs else "no output"
    widths = f"{bits_observed(sums)} observed"
    if sums.guaranteed is not None:
        widths += f", {sums.guaranteed} guaranteed"
    bits = tally.accumulator.bits
    return f"{name}\n{bits} bits: {counted}; {widths}"
