"""`roofline.png`: how near the kernels come to the roofs (needs the `plots` extra)."""

from __future__ import annotations

from analyzers.views import ViewOptions, _drawing
from analyzers.views.roofline import _chart
from tracer.records.trace import Trace


def render(trace: Trace, options: ViewOptions) -> bytes:
    """Raises UsageError where nothing was timed, and where matplotlib is not installed."""
    return _drawing.saved(_chart.figure(trace, options), "png")
