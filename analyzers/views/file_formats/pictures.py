"""`.png` and `.svg`, also after `.roofline` and `.sums`: charts (need the `plots` extra)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.drawing import saved
from tracer.analyzers.views.file_formats import Extra, Format

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PLOTS = Extra("matplotlib", "plots")


def render(figure: Figure, options: ViewOptions, kind: str) -> bytes:
    """The figure as `png` or `svg`; the same figure gives the same file."""
    return saved(figure, kind)


FORMATS = tuple(
    Format(f"{prefix}{kind}", part, partial(render, kind=kind), kind == "png", _PLOTS)
    for prefix, part in (("", "figure"), ("roofline.", "roofline"), ("sums.", "sums"))
    for kind in ("png", "svg")
)
