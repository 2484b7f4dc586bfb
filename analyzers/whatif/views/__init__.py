"""Renderings of a what-if; a file format is one module, called by its extension."""

from __future__ import annotations

from collections.abc import Callable

from analyzers.views import _formats
from tracer.records.whatif import WhatIf

Render = Callable[["WhatIf"], bytes]


def formats() -> tuple[str, ...]:
    """Extensions of the formats there are, without the dot."""
    return _formats.names(__name__)


def renderer(extension: str) -> Render:
    """The function that renders one of the `formats`."""
    render: Render = _formats.render(__name__, extension)
    return render
