"""Renderings of a Trace. A file format is one module, called by its extension, with `render`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.trace import Trace


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
_SCREEN = "terminal"


def formats() -> tuple[str, ...]:
    """Extensions of the formats there are, without the dot."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(n for n in names if n != _SCREEN and not n.startswith("_")))


def renderer(extension: str) -> Render:
    """The function that renders a format. Raises UsageError where there is none."""
    if extension not in formats():
        raise UsageError(
            f"there is no format '{extension}'", f"The formats are {', '.join(formats())}."
        )
    render: Render = importlib.import_module(f"analyzers.views.{extension}").render
    return render
