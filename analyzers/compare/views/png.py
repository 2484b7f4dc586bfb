"""`.png`: bars for the sides, layer by layer, or for the batch sizes (needs the `plots` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.compare.views import _chart

if TYPE_CHECKING:
    from analyzers.compare.views import Result


def render(result: Result, top: int | None) -> bytes:
    """Raises UsageError where matplotlib is not installed."""
    return _chart.draw(result, top, "png")
