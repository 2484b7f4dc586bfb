"""The picture: for each variant score and energy by width, where sums lie, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from analyzers.views.drawing import HIGH, PLAIN, blank, short, unformulated
from analyzers.views.text import printable, si
from analyzers.whatif import label, words
from tracer.accumulators.statistics.bins import edges
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.records.whatif import Variant, WhatIf

Counts = npt.NDArray[np.int64]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_ENERGY = "#d9a441"
_OTHERS = "#bbbbbb"
_EACH = "#3a923a"
_COLUMNS = 3
_PANEL_INCHES = 4.6, 2.9
_HEAD_INCHES = 0.5
_MOST_NODES = 30
_TICK_BITS = 8
_TICK_GAP = 3
"""Bits between two labels of an axis, on which every bit is an octave."""
_ALL = "all nodes; blue: final sums, yellow: extremes of partial sums"
_LINEAR = 16
"""Up to here the axis of sums is linear, and logarithmic beyond."""


def figure(result: WhatIf) -> Figure:
    """For each variant its panels: score and energy, Pareto front, sums of all and of each node."""
    width, height = _PANEL_INCHES
    counts = [math.ceil((_FIRST + len(_shown(one))) / _COLUMNS) for one in result.variants]
    chart = blank(width * _COLUMNS, height * sum(counts) + _HEAD_INCHES * len(counts))
    parts = chart.subfigures(len(counts), 1, squeeze=False, height_ratios=counts)[:, 0]
    for part, rows, one in zip(parts, counts, result.variants, strict=True):
        title = f"{printable(result.model.name)} · {label(result, one)}"
        part.suptitle(unformulated(title), x=0.01, ha="left", fontsize=10)
        panels = part.subplots(rows, _COLUMNS, squeeze=False).ravel()
        _by_width(panels[0], result, one)
        _front(panels[1], result, one)
        _histogram(panels[2], _ALL, _together(one.answer.sums), one)
        for panel, sums in zip(panels[_FIRST:], _shown(one), strict=False):
            tally = sums.tally
            extremes = tally.low_histogram + tally.high_histogram
            _histogram(panel, _node_title(sums), (tally.final_histogram, extremes), one)
        for panel in panels[_FIRST + len(_shown(one)) :]:
            panel.set_axis_off()
    return chart


_FIRST = 3
"""Panels about the whole network, before those of nodes."""


def _shown(one: Variant) -> Sequence[PartialSums]:
    """The nodes that need most bits, in the order of the model."""
    known = one.answer.sums
    ranked = sorted(known, key=lambda sums: -int(sums.tally.bits_observed.max(initial=0)))
    kept = {sums.node for sums in ranked[:_MOST_NODES]}
    return [sums for sums in known if sums.node in kept]


def _by_width(axes: Axes, result: WhatIf, one: Variant) -> None:
    """The score on the left, the energy on the right, and the answers as lines."""
    from matplotlib.ticker import MaxNLocator

    answer, judgement = one.answer, result.judgement
    bits = [row.bits for row in answer.rows]
    metric = judgement.metric.rpartition(":")[2]
    axes.plot(bits, [row.score for row in answer.rows], color=PLAIN, marker="o", markersize=3)
    axes.set_ylabel(unformulated(f"{metric} {judgement.unit}".strip()), fontsize=8, color=PLAIN)
    axes.set_xlabel("bits of the accumulator", fontsize=8)
    other = axes.twinx()
    other.plot(bits, [row.energy for row in answer.rows], color=_ENERGY, marker="s", markersize=2)
    other.set_ylim(bottom=0)
    other.set_ylabel(f"energy [{result.energy.unit or 'units'}]", fontsize=8, color=_ENERGY)
    other.yaxis.set_major_formatter(lambda value, _: si(value))
    other.tick_params(labelsize=7)
    other.spines["top"].set_visible(False)
    for name, at in _answers(one):
        axes.axvline(at, color=HIGH, linewidth=0.8, linestyle="--")
        place = axes.get_xaxis_transform()
        axes.text(at, 0.02, f" {name}", fontsize=8, color=HIGH, transform=place)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("score and energy by width", fontsize=8, loc="left")
    _finish(axes)


def _answers(one: Variant) -> list[tuple[str, int]]:
    observed, uniform = one.answer.observed, one.answer.uniform
    if uniform is None:
        return [("A", observed)]
    bits = one.swept(uniform)[0]
    return [("A B", bits)] if bits == observed else [("A", observed), ("B", bits)]


def _front(axes: Axes, result: WhatIf, one: Variant) -> None:
    """Every evaluation as energy against score; those that nothing beats in red."""
    answer = one.answer
    places = {work.node: place for place, work in enumerate(one.work)}
    energies = [_energy(one, places, each.bits) for each in answer.evaluations]
    scores = [each.score for each in answer.evaluations]
    axes.scatter(energies, scores, s=6, color=_OTHERS, label="evaluations")
    front = answer.front
    axes.plot([p.energy for p in front], [p.score for p in front], color=HIGH, marker="o",
              markersize=3, linewidth=0.9, label="nothing beats these")  # fmt: skip
    for name, choice, colour in (("B", answer.uniform, PLAIN), ("C", answer.each, _EACH)):
        if choice is not None:
            axes.plot(choice.energy, choice.score, marker="*", markersize=10, color=colour,
                      linestyle="none", label=name)  # fmt: skip
    axes.xaxis.set_major_formatter(lambda value, _: si(value))
    axes.set_xlabel(f"energy of a sample [{result.energy.unit or 'units'}]", fontsize=8)
    metric = result.judgement.metric.rpartition(":")[2]
    axes.set_ylabel(unformulated(f"{metric} {result.judgement.unit}".strip()), fontsize=8)
    axes.set_title(f"energy against score, within {words.budget(result.judgement)}: B and C",
                   fontsize=8, loc="left")  # fmt: skip
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    _finish(axes)


def _energy(one: Variant, places: Mapping[str, int], bits: Mapping[str, int]) -> float:
    return sum(one.energies[width][places[node]] for node, width in bits.items())


def _together(sums: Sequence[PartialSums]) -> tuple[Counts, Counts]:
    tallies = [each.tally for each in sums]
    final = sum(tally.final_histogram for tally in tallies[1:]) + tallies[0].final_histogram
    extremes = sum(t.low_histogram + t.high_histogram for t in tallies[1:])
    return final, extremes + tallies[0].low_histogram + tallies[0].high_histogram


def _node_title(sums: PartialSums) -> str:
    observed = int(sums.tally.bits_observed.max(initial=0))
    return f"{short(printable(sums.node))}: {observed} bits observed, {sums.guaranteed} guaranteed"


def _histogram(axes: Axes, title: str, counts: tuple[Counts, Counts], one: Variant) -> None:
    """Final sums and the extremes of partial sums, and where accumulators of some widths end."""
    final, extremes = counts
    filled = np.flatnonzero(final + extremes)
    first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, len(final) - 1)
    bins = edges()[first : last + 2]
    axes.set_xscale("symlog", base=2, linthresh=_LINEAR)
    axes.stairs(final[first : last + 1], bins, fill=True, color=PLAIN)
    axes.stairs(extremes[first : last + 1], bins, color=_ENERGY, linewidth=1.0)
    axes.set_yscale("log")
    left, right = float(bins[0]), float(bins[-1])
    widths = [row.bits for row in one.answer.rows]
    for bits in widths:
        low, high = one.answer.accumulator.range_of(bits)
        for end in (low, high + 1):
            if left < end < right:
                axes.axvline(end, color=HIGH, linewidth=0.5, alpha=0.6)
    axes.set_xlim(left, right)
    marks = _marks(one, widths, left, right)
    axes.set_xticks([place for place, _ in marks], [name for _, name in marks])
    axes.minorticks_off()
    axes.set_title(unformulated(title), fontsize=8, loc="left")
    axes.set_xlabel("sum; red: where accumulators of so many bits end", fontsize=7)
    _finish(axes)


def _marks(
    one: Variant, widths: Sequence[int], left: float, right: float
) -> list[tuple[float, str]]:
    """0, and the ends of some accumulators by their bits."""
    gap = max(math.ceil(len(widths) / _TICK_BITS), _TICK_GAP)
    labelled = [widths[0]]
    labelled += [bits for bits in widths if (bits - widths[0]) % gap == 0 and bits > labelled[-1]]
    ends = [(one.answer.accumulator.range_of(bits), bits) for bits in labelled]
    marks = [(0.0, "0")]
    marks += [(float(high + 1), str(bits)) for (_, high), bits in ends if high + 1 < right]
    marks += [(float(low), str(bits)) for (low, _), bits in ends if left < low]
    return marks


def _finish(axes: Axes) -> None:
    axes.tick_params(labelsize=7)
    axes.spines["top"].set_visible(False)
