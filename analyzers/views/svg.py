"""`.svg`: the picture of the layers, or of partial sums (needs the `plots` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.views import _picture

if TYPE_CHECKING:
    from analyzers.views import ViewOptions
    from tracer.trace import Trace


def render(trace: Trace, options: ViewOptions) -> bytes:
    """Raises UsageError where matplotlib is not installed."""
    return _picture.draw(trace, options, "svg")
