"""`.trace`: everything that was measured, to be rendered again later."""

from __future__ import annotations

from analyzers.views import ViewOptions
from tracer.records.trace import Trace
from tracer.storage import trace_file


def render(trace: Trace, options: ViewOptions) -> bytes:
    """The bytes of an SQLite file."""
    return trace_file.dumps(trace)
