"""Curves for the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzers.views._drawing import HIGH, PLAIN, blank, saved

_COLOURS = (PLAIN, HIGH)


def curves(
    panels: Mapping[str, Mapping[str, Sequence[float]]], x: Sequence[float], label: str
) -> bytes:
    """A PNG with a panel for each of `panels`: lines by name over `x`, which is called `label`."""
    figure = blank(4.6 * len(panels), 3.4)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, (title, lines) in zip(axes, panels.items(), strict=True):
        for colour, (name, values) in zip(_COLOURS, lines.items(), strict=False):
            panel.plot(x, values, marker="o", markersize=3, color=colour, label=name)
        panel.set_title(title, fontsize=10, loc="left")
        panel.set_xlabel(label)
        panel.set_xticks(x)
        panel.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            panel.legend(fontsize=8, frameon=False)
    return saved(figure, "png")
