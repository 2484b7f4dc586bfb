"""Charts of a what-if: score and energy by width, Pareto front, and histograms of sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracer.accumulators.statistics.bins import edges
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.analyzers.overflow import bits_observed, widest
from tracer.analyzers.views.drawing import (
    EXTREMES,
    HIGH,
    LINEAR,
    OTHERS,
    PLAIN,
    empty_figure,
    labels,
    plain,
)
from tracer.analyzers.views.text import si
from tracer.analyzers.whatif import label, words
from tracer.records.whatif import Variant, WhatIf, known_sum

Counts = npt.NDArray[np.int64]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_EACH = "#3a923a"
_COLUMNS = 3
_PANEL_INCHES = 4.6, 2.9
_HEAD_INCHES = 0.5
MOST_NODES = 6
"""Panels of nodes unless `--top` sets another number; with those of the whole network, 3 rows."""
_TICK_BITS = 8
_TICK_GAP = 3
"""Bits between two labels of an axis, on which every bit is an octave."""
_ALL = "all nodes; blue: final sums, yellow: extremes of partial sums"


def figure(result: WhatIf, top: int) -> Figure:
    """For each variant its panels: score and energy, Pareto front, sums of all and of each node.

    `top` is the number of nodes, those that need the most bits [0: all].
    """
    width, height = _PANEL_INCHES
    shown_of = [widest(variant.answer.sums, top) for variant in result.variants]
    counts = [math.ceil((_FIRST + len(shown)) / _COLUMNS) for shown in shown_of]
    chart = empty_figure(width * _COLUMNS, height * sum(counts) + _HEAD_INCHES * len(counts))
    parts = chart.subfigures(len(counts), 1, squeeze=False, height_ratios=counts)[:, 0]
    for part, rows, variant, shown in zip(parts, counts, result.variants, shown_of, strict=True):
        title = plain(f"{result.model.name} · {label(result, variant)}")
        part.suptitle(title, x=0.01, ha="left", fontsize=10)
        panels = part.subplots(rows, _COLUMNS, squeeze=False).ravel()
        _by_width(panels[0], result, variant)
        _front(panels[1], result, variant)
        _histogram(panels[2], _ALL, _together(variant.answer.sums), variant)
        names = labels(sums.node for sums in shown)
        for panel, name, sums in zip(panels[_FIRST:], names, shown, strict=False):
            tally = sums.tally
            extremes = tally.low_histogram + tally.high_histogram
            _histogram(panel, _node_title(name, sums), (tally.final_histogram, extremes), variant)
        for panel in panels[_FIRST + len(shown) :]:
            panel.set_axis_off()
    return chart


_FIRST = 3
"""Panels about the whole network, before those of nodes."""


def _by_width(axes: Axes, result: WhatIf, variant: Variant) -> None:
    from matplotlib.ticker import MaxNLocator

    answer = variant.answer
    bits = [row.bits for row in answer.rows]
    axes.plot(bits, [row.score for row in answer.rows], color=PLAIN, marker="o", markersize=3)
    axes.set_ylabel(plain(words.metric(result.judgement)), fontsize=8, color=PLAIN)
    axes.set_xlabel("bits of the accumulator", fontsize=8)
    other = axes.twinx()
    other.plot(bits, [row.energy for row in answer.rows], color=EXTREMES, marker="s", markersize=2)
    other.set_ylim(bottom=0)
    other.set_ylabel(plain(f"energy [{result.energy.unit or 'units'}]"), fontsize=8, color=EXTREMES)
    other.yaxis.set_major_formatter(lambda value, _: si(value))
    other.tick_params(labelsize=7)
    other.spines["top"].set_visible(False)
    for name, at in _answers(variant):
        axes.axvline(at, color=HIGH, linewidth=0.8, linestyle="--")
        bottom = axes.get_xaxis_transform()
        axes.text(at, 0.02, f" {name}", fontsize=8, color=HIGH, transform=bottom)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("score and energy by width", fontsize=8, loc="left")
    _finish(axes)


def _answers(variant: Variant) -> list[tuple[str, int]]:
    observed, uniform = variant.answer.observed, variant.answer.uniform
    if uniform is None:
        return [("A", observed)]
    bits = variant.swept(uniform)[0]
    return [("A B", bits)] if bits == observed else [("A", observed), ("B", bits)]


def _front(axes: Axes, result: WhatIf, variant: Variant) -> None:
    """Draws energy against score of every evaluation; the Pareto front is red."""
    answer = variant.answer
    indices = {work.node: index for index, work in enumerate(variant.work)}
    energies = [
        known_sum(variant.energies[width][indices[node]] for node, width in evaluation.bits.items())
        for evaluation in answer.evaluations
    ]
    scores = [each.score for each in answer.evaluations]
    axes.scatter(energies, scores, s=6, color=OTHERS, label="evaluations")
    front = answer.front
    axes.plot([p.energy for p in front], [p.score for p in front], color=HIGH, marker="o",
              markersize=3, linewidth=0.9, label="Pareto front")  # fmt: skip
    for name, choice, colour in (("B", answer.uniform, PLAIN), ("C", answer.each, _EACH)):
        if choice is not None:
            axes.plot(choice.energy, choice.score, marker="*", markersize=10, color=colour,
                      linestyle="none", label=name)  # fmt: skip
    axes.xaxis.set_major_formatter(lambda value, _: si(value))
    axes.set_xlabel(plain(f"energy of a sample [{result.energy.unit or 'units'}]"), fontsize=8)
    axes.set_ylabel(plain(words.metric(result.judgement)), fontsize=8)
    title = f"energy against score, within {words.budget(result.judgement)}: B and C"
    axes.set_title(plain(title), fontsize=8, loc="left")
    falls = bool(front) and front[-1].score < front[0].score  # an error: the upper right is free
    axes.legend(fontsize=7, frameon=False, loc="upper right" if falls else "lower right")
    _finish(axes)


def _together(all_sums: Sequence[PartialSums]) -> tuple[Counts, Counts]:
    tallies = [sums.tally for sums in all_sums]
    final = np.sum([tally.final_histogram for tally in tallies], axis=0)
    return final, np.sum([tally.low_histogram + tally.high_histogram for tally in tallies], axis=0)


def _node_title(name: str, sums: PartialSums) -> str:
    widths = f"{bits_observed(sums)} bits observed, {sums.guaranteed} guaranteed"
    return f"{name}: {widths}"


def _histogram(axes: Axes, title: str, counts: tuple[Counts, Counts], variant: Variant) -> None:
    """Draws final sums, extremes of partial sums, and the ends of accumulators by width."""
    final, extremes = counts
    filled = np.flatnonzero(final + extremes)
    first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, len(final) - 1)
    bins = edges()[first : last + 2]
    axes.set_xscale("symlog", base=2, linthresh=LINEAR)
    axes.stairs(final[first : last + 1], bins, fill=True, color=PLAIN)
    axes.stairs(extremes[first : last + 1], bins, color=EXTREMES, linewidth=1.0)
    axes.set_yscale("log")
    left, right = float(bins[0]), float(bins[-1])
    widths = [row.bits for row in variant.answer.rows]
    for bits in widths:
        low, high = variant.answer.accumulator.range_of(bits)
        for end in (low, high + 1):
            if left < end < right:
                axes.axvline(end, color=HIGH, linewidth=0.5, alpha=0.6)
    axes.set_xlim(left, right)
    marks = _marks(variant, widths, left, right)
    axes.set_xticks([value for value, _ in marks], [name for _, name in marks])
    axes.minorticks_off()
    axes.set_title(title, fontsize=8, loc="left")
    axes.set_xlabel("sum; red: ends of accumulators of this many bits", fontsize=7)
    _finish(axes)


def _marks(
    variant: Variant, widths: Sequence[int], left: float, right: float
) -> list[tuple[float, str]]:
    """Returns ticks at 0 and at the ends of some accumulators, labelled with their bits."""
    gap = max(math.ceil(len(widths) / _TICK_BITS), _TICK_GAP)
    labelled = [widths[0]]
    labelled += [bits for bits in widths if (bits - widths[0]) % gap == 0 and bits > labelled[-1]]
    ends = [(variant.answer.accumulator.range_of(bits), bits) for bits in labelled]
    marks = [(0.0, "0")]
    marks += [(float(high + 1), str(bits)) for (_, high), bits in ends if high + 1 < right]
    marks += [(float(low), str(bits)) for (low, _), bits in ends if left < low]
    return marks


def _finish(axes: Axes) -> None:
    axes.tick_params(labelsize=7)
    axes.spines["top"].set_visible(False)
