"""`.svg`: bars for the sides, layer by layer, or for the batch sizes (needs the `plots` extra)."""

from __future__ import annotations

from analyzers.compare.views import Result, _chart


def render(result: Result, top: int | None) -> bytes:
    """Raises UsageError where matplotlib is not installed."""
    return _chart.draw(result, top, "svg")
