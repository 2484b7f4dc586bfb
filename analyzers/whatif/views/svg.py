"""`.svg`: score and energy by width, partial sums, the Pareto front (needs the `plots` extra)."""

from __future__ import annotations

from analyzers.whatif.views import _picture
from tracer.records.whatif import WhatIf


def render(result: WhatIf) -> bytes:
    """Raises UsageError where matplotlib is not installed."""
    return _picture.draw(result, "svg")
