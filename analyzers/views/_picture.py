"""The picture of a trace: partial sums where accumulators were narrow, else the time of layers."""

from __future__ import annotations

from analyzers.views import ViewOptions, _chart, _drawing, _histograms
from tracer.records.trace import Trace


def draw(trace: Trace, options: ViewOptions, kind: str) -> bytes:
    """The picture as `png` or `svg`. Raises UsageError where matplotlib is not installed."""
    chart = _histograms if any(run.sums for run in trace.runs) else _chart
    return _drawing.saved(chart.figure(trace, options), kind)
