"""Bar charts of a comparison or a sweep: time by layer and side, or by operator and batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.compare.sweep import WHOLE, Sweep, wide
from tracer.analyzers.views.drawing import empty_figure, labels, plain
from tracer.analyzers.views.page import times

MARK = "*"
"""Marks a statistically significant difference."""

_MOST_GROUPS = 30
_COLOURS = ("#4878a8", "#e1812c", "#3a923a", "#9372b2", "#845b53", "#d684bd", "#7f7f7f", "#a8a83a")
_WORK = "#bbbbbb"


def comparison(result: Comparison, top: int | None) -> Any:
    """The figure of a comparison: the largest changes by layer, or the sides as a whole."""
    if result.layers is None:
        return _totals(result)
    return _layers(result, result.layers, top or _MOST_GROUPS)


def _totals(result: Comparison) -> Any:
    rows = result.totals
    figure = empty_figure(max(6.0, 0.9 * len(rows) + 2), 4.6)
    axes = figure.subplots()
    convolution = rows["time_us"] * rows["convolution_share"].fillna(0)
    positions = range(len(rows))
    axes.bar(positions, convolution / 1e3, color=_COLOURS[0], label="convolution")
    rest = rows["time_us"] - convolution
    axes.bar(positions, rest / 1e3, bottom=convolution / 1e3, color=_WORK, label="the rest")
    for position, row in enumerate(rows.to_dict("records")):
        mark = MARK if row["significant"] else ""
        text = f"{times(row['ratio'])} times A{mark}" if position else ""
        axes.annotate(text, (position, row["time_us"] / 1e3), (0, 2), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
    axes.set_ylabel("time per run [ms]")
    _finish(axes, [str(side) for side in rows["side"]])
    return figure


def _layers(result: Comparison, rows: pd.DataFrame, most: int) -> Any:
    rows = rows.head(most)
    names = [f"{letter(index).upper()} {side.label}" for index, side in enumerate(result.sides)]
    ends = [letter(index) for index in range(len(names))]
    significant = rows[[f"significant_{end}" for end in ends[1:]]].any(axis=1)
    named = rows["layer"] if result.by == "layer" else rows[result.by]
    if result.by == "layer":  # the name of a module that is one layer says more than a node's
        own = ~rows["module"].duplicated(keep=False) & ~rows["module"].str.startswith("(")
        named = named.where(~own, rows["module"])
    pairs = zip(named, significant, strict=True)
    marked_names = [f"{text}{MARK if marked else ''}" for text, marked in pairs]
    figure = empty_figure(min(max(8.0, 0.16 * len(rows) * (len(names) + 1) + 2), 24.0), 5.0)
    axes = figure.subplots()
    _grouped(axes, dict(zip(names, [rows[f"time_us_{end}"] for end in ends], strict=True)))
    title = f"largest changes first; {MARK} marks a significant difference"
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_ylabel("time per run [µs]")
    _finish(axes, marked_names)
    return figure


def sweeps(result: Sequence[Sweep], top: int | None) -> Any:
    """The figure of sweeps: by model, the time of a sample, and the growth of time and work."""
    most = top or _MOST_GROUPS
    shown = [wide(one) for one in result]
    widest = max(min(len(rows), most) for rows in shown)
    figure = empty_figure(min(max(10.0, 0.9 * widest + 4), 24.0), 4.6 * len(result))
    panels = figure.subplots(len(result), 2, squeeze=False)
    for (left, right), one, rows in zip(panels, result, shown, strict=True):
        kept = rows[rows["op"] != WHOLE].head(most)
        sizes, last = one.batches, one.batches[-1]
        _grouped(left, {f"batch {n}": kept[f"sample_us_{n}"] for n in sizes})
        left.set_ylabel("time per sample [µs]")
        left.set_title(plain(one.label), fontsize=10, loc="left")
        both = rows.head(most) if len(rows) <= most else kept
        growth = {"time": both[f"time_growth_{last}"], "work": both[f"work_growth_{last}"]}
        _grouped(right, growth, (_COLOURS[0], _WORK))
        right.set_ylabel(f"growth from batch {sizes[0]} to {last}")
        right.axhline(last / sizes[0], color="#555555", linewidth=0.8, linestyle="--")
        _finish(left, list(kept["op"]))
        _finish(right, list(both["op"]))
    return figure


def _grouped(
    axes: Any, bars: Mapping[str, pd.Series[Any]], colours: Sequence[str] = _COLOURS
) -> None:
    width = 0.8 / len(bars)
    for index, (name, values) in enumerate(bars.items()):
        positions = np.arange(len(values)) + (index - (len(bars) - 1) / 2) * width
        colour = colours[index % len(colours)]
        axes.bar(positions, values.fillna(0), width=width, color=colour, label=plain(name))


def _finish(axes: Any, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), labels(names), rotation=90, fontsize=7)
    axes.margins(x=0.01)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
