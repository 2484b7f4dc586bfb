"""Renderings of a comparison or a sweep; a file format is one module, called by its extension."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from analyzers.compare import Comparison
from analyzers.compare.sweep import Sweep
from analyzers.views import _formats

Result: TypeAlias = Comparison | tuple[Sweep, ...]
"""What a view renders: sides against the first of them, or models at several batch sizes."""

Render = Callable[[Result, int | None], bytes]


def formats() -> tuple[str, ...]:
    """Extensions of the formats there are, without the dot."""
    return _formats.names(__name__)


def renderer(extension: str) -> Render:
    """The function that renders one of the `formats`: a result, and how many rows (None: all)."""
    render: Render = _formats.render(__name__, extension)
    return render
