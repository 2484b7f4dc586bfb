"""`.png`: the picture of the layers, or of partial sums (needs the `plots` extra)."""

from __future__ import annotations

from analyzers.views import ViewOptions, _picture
from tracer.records.trace import Trace


def render(trace: Trace, options: ViewOptions) -> bytes:
    """Raises UsageError where matplotlib is not installed."""
    return _picture.draw(trace, options, "png")
