"""Renderings of a Trace. A file format is one module, called by its extension, with `render`.

A second picture of the same trace is a package with a module for each of its formats: its extension
has two parts, as in `roofline.png`.
"""

from __future__ import annotations

from collections.abc import Callable

from analyzers.options import ViewOptions
from analyzers.views import _formats
from tracer.errors import UsageError
from tracer.records.trace import Trace

__all__ = ["ViewOptions", "formats", "renderer"]

Render = Callable[["Trace", ViewOptions], bytes]


def formats() -> tuple[str, ...]:
    """Extensions of the formats there are, without the dot; that of a package has two parts."""
    return _formats.names(__name__)


def renderer(extension: str) -> Render:
    """The function that renders a format. Raises UsageError where there is none."""
    if extension not in formats():
        raise UsageError(
            f"there is no format '{extension}'", f"The formats are {', '.join(formats())}."
        )
    render: Render = _formats.render(__name__, extension)
    return render
