"""`.trace`: everything that was measured, to be rendered again later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzers.views import ViewOptions
    from tracer.trace import Trace


def render(trace: Trace, options: ViewOptions) -> bytes:
    """The bytes of an SQLite file."""
    from tracer import store

    return store.dumps(trace)
