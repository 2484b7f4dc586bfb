"""The view of a Trace: its page and table. What files hold is imported when it is asked for.

A terminal needs a page alone, and most commands write no file.
"""

import importlib
from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page
from tracer.analyzers.views.trace import phases
from tracer.analyzers.views.trace.headline import sections, table
from tracer.analyzers.views.trace.run_tables import tables, top
from tracer.records.trace import Trace

__all__ = ["page", "stored", "table", "top"]

_PARTS = {
    "charts": "figure roofline sums",
    "contents": "document report",
    "exchange": "annotated board head_room node_times node_values stacks timeline",
}
"""The other parts of this view, by the modules that define them."""
_HOMES = {part: home for home, parts in _PARTS.items() for part in parts.split()}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def page(trace: Trace, options: ViewOptions) -> Page:
    """The tables of all runs, phases side by side, then what to know about them."""
    if trace.generation is not None:
        shown = list(phases.tables(trace, trace.generation, options))
    else:
        shown = [each for section in sections(trace) for each in tables(trace, section, options)]
    return Page(tuple(shown), trace.notes, trace.environment.summary)


def stored(trace: Trace, options: ViewOptions) -> bytes:
    """The trace as an SQLite file."""
    from tracer.storage import trace_file  # with sqlite3: 0.03 s, and few profiles are stored

    return trace_file.dumps(trace)
