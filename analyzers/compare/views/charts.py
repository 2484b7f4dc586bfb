"""Bar charts of a comparison or a sweep: time by layer and side, or by operator and batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.views.drawing import empty_figure, labels, plain
from tracer.analyzers.views.page import times

MARK = "*"
"""Marks a statistically significant difference."""

MOST_GROUPS = 30
COLOURS = ("#4878a8", "#e1812c", "#3a923a", "#9372b2", "#845b53", "#d684bd", "#7f7f7f", "#a8a83a")
WORK = "#bbbbbb"


def draw_totals(result: Comparison) -> Any:
    """The figure of the sides as a whole."""
    rows = result.totals
    figure = empty_figure(max(6.0, 0.9 * len(rows) + 2), 4.6)
    axes = figure.subplots()
    convolution = rows["time_us"] * rows["convolution_share"].fillna(0)
    positions = range(len(rows))
    axes.bar(positions, convolution / 1e3, color=COLOURS[0], label="convolution")
    rest = rows["time_us"] - convolution
    axes.bar(positions, rest / 1e3, bottom=convolution / 1e3, color=WORK, label="the rest")
    for position, row in enumerate(rows.to_dict("records")):
        mark = MARK if row["significant"] else ""
        text = f"{times(row['ratio'])} times A{mark}" if position else ""
        axes.annotate(text, (position, row["time_us"] / 1e3), (0, 2), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
    axes.set_ylabel("time per run [ms]")
    finish(axes, [str(side) for side in rows["side"]])
    return figure


def draw_layers(result: Comparison, rows: pd.DataFrame, most: int) -> Any:
    """The figure of the largest changes by layer."""
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
    draw_bars(axes, dict(zip(names, [rows[f"time_us_{end}"] for end in ends], strict=True)))
    title = f"largest changes first; {MARK} marks a significant difference"
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_ylabel("time per run [µs]")
    finish(axes, marked_names)
    return figure


def draw_bars(
    axes: Any, bars: Mapping[str, pd.Series[Any]], colours: Sequence[str] = COLOURS
) -> None:
    """Draws bars of several names beside each other."""
    width = 0.8 / len(bars)
    for index, (name, values) in enumerate(bars.items()):
        positions = np.arange(len(values)) + (index - (len(bars) - 1) / 2) * width
        colour = colours[index % len(colours)]
        axes.bar(positions, values.fillna(0), width=width, color=colour, label=plain(name))


def finish(axes: Any, names: Sequence[str]) -> None:
    """Labels the groups of bars."""
    axes.set_xticks(range(len(names)), labels(names), rotation=90, fontsize=7)
    axes.margins(x=0.01)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
