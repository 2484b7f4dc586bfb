"""Renderings of a Trace. A file format is one module, called by its extension, with `render`.

A second picture of the same trace is a package with a module for each of its formats: its extension
has two parts, as in `roofline.png`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analyzers.views import _formats
from tracer.errors import UsageError
from tracer.records.trace import Trace


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """What to show: the grouping, how many rows (None for all), and the chart's threshold in µs.

    `depth` is how many levels of modules are kept apart, None for all.
    """

    by: str = "node"
    top: int | None = None
    threshold: float | None = None
    depth: int | None = None


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
