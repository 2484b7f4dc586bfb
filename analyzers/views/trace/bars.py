"""The bar chart: time of each layer in the order of the graph, the slow ones highlighted."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pandas as pd

from analyzers.options import NAMES, ViewOptions
from analyzers.views.drawing import HIGH, PLAIN, empty_figure, labels, plain
from analyzers.views.text import micros, si
from analyzers.views.trace.headline import headline
from analyzers.views.trace.sections import Section, folded, ordered, sections
from tracer.records.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MOST_LABELS = 80
_MOST_BARS = 2_000
"""More are thinner than a pixel, and are drawn as lines: matplotlib takes 5 ms for a bar."""
_HIGH_TIMES_MEDIAN = 2
_TITLE_CHARACTERS_PER_INCH = 10


def figure(trace: Trace, options: ViewOptions) -> Figure:
    """A panel for each run.

    Bars at or above `options.threshold` µs are red; without one, and where MACs are drawn because
    nothing was timed, those of at least twice the median of the bars above 0.
    """
    drawn = sections(trace)
    panels = [_bars(section, options) for section in drawn]
    width = min(max(8.0, 0.22 * max(map(len, panels)) + 2), 24.0)
    chart = empty_figure(width, 4.6 * len(panels))
    axes = chart.subplots(len(panels), squeeze=False)[:, 0]
    for panel, section, rows in zip(axes, drawn, panels, strict=True):
        title = plain(headline(trace, section))
        lines = textwrap.fill(title, int(width * _TITLE_CHARACTERS_PER_INCH))
        panel.set_title(lines, fontsize=10, loc="left", pad=18)
        _draw_panel(panel, rows, options)
    return chart


def _bars(section: Section, options: ViewOptions) -> pd.DataFrame:
    rows = folded(section, options)
    if options.top:
        rows = rows.loc[ordered(rows, options).head(options.top).index].sort_index()
    rows["value"] = rows["time_us"] if rows["time_us"].notna().any() else rows["macs"]
    return rows[rows["value"].notna()].astype({"value": "float64"})


def _draw_panel(axes: Any, rows: pd.DataFrame, options: ViewOptions) -> None:
    timed = bool(rows["time_us"].notna().any())
    threshold, meaning = _threshold(rows["value"], options.threshold if timed else None)
    high = rows["value"] >= (float("inf") if threshold is None else threshold)
    positions = range(len(rows))
    colors = [HIGH if h else PLAIN for h in high]
    if len(rows) <= _MOST_BARS:
        axes.bar(positions, rows["value"], color=colors, width=0.8)
    else:
        axes.vlines(positions, 0, rows["value"], colors=colors, linewidth=1)
    if threshold is not None:
        axes.axhline(threshold, color=HIGH, linewidth=0.8, linestyle="--")
        amount = f"{micros(threshold)} µs" if timed else f"{si(threshold)} MACs"
        axes.annotate(
            f"red: ≥ {amount}{meaning}", (0, 1), (0, 5), "axes fraction", "offset points",
            fontsize=8, color=HIGH,
        )  # fmt: skip
    axes.set_ylabel("time per run [µs]" if timed else "MACs")
    if not timed:
        axes.yaxis.set_major_formatter(lambda value, _: si(value))
    axes.margins(x=0.01)
    axes.set_ylim(bottom=0, top=None if rows["value"].any() or threshold else 1)
    axes.spines[["top", "right"]].set_visible(False)
    if len(rows) <= _MOST_LABELS:
        axes.set_xticks(positions, labels(rows[NAMES[options.by]]), rotation=90, fontsize=7)
    else:
        axes.set_xlabel(f"{len(rows):,} rows in the order of the graph")


def _threshold(values: pd.Series[float], chosen: float | None) -> tuple[float | None, str]:
    """Returns the value from which bars are red, and why; None if no bar stands out."""
    if chosen is not None:
        return chosen, ""
    high = _HIGH_TIMES_MEDIAN * float(values[values > 0].median())  # NaN where there is none
    return (high, ", twice the median") if (values >= high).any() else (None, "")
