"""Histograms of the sums of each node, with the range of its accumulator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracer.accumulators.statistics.bins import edges
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.analyzers.options import CHART_TOP, ViewOptions
from tracer.analyzers.overflow import bits_observed, widest
from tracer.analyzers.views.drawing import (
    EXTREMES,
    HIGH,
    LINEAR,
    PLAIN,
    empty_figure,
    labels,
    plain,
)
from tracer.errors import UsageError
from tracer.records.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_COLUMNS = 3
_PANEL_INCHES = 4.2, 2.5
_HEAD_INCHES = 0.7


def figure(trace: Trace, options: ViewOptions) -> Figure:
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
    shown = _shown(tally.final_histogram + extremes, edges(), low, high)
    bins = edges()[shown.start : shown.stop + 1]
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
    axes.set_xticks(*_ticks(left, right))
    axes.minorticks_off()
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_title(name, sums), fontsize=8, loc="left")


def _shown(counts: npt.NDArray[np.int64], edges: Any, low: int, high: int) -> slice:
    """Returns the range of non-empty bins and of the bins at the ends of the accumulator."""
    filled = np.flatnonzero(counts)
    ends = np.searchsorted(edges, [low, high + 1])
    first = min([ends[0] - 1, *filled[:1]])
    last = max([ends[1] + 1, *(filled[-1:] + 1)])
    return slice(max(int(first), 0), min(int(last), len(counts)))


def _ticks(left: float, right: float) -> tuple[list[float], list[str]]:
    most = math.log2(max(-left, right, 2 * LINEAR))
    step = 4 * math.ceil(most / 16)
    powers = range(step, math.floor(most) + 1, step)
    marks = [(0.0, "0")]
    marks += [(2.0**p, f"$2^{{{p}}}$") for p in powers]
    marks += [(-(2.0**p), f"$-2^{{{p}}}$") for p in powers]
    visible = [mark for mark in marks if left <= mark[0] <= right]
    return [position for position, _ in visible], [label for _, label in visible]


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
