"""Renderings of a comparison or a sweep; a file format is one module, called by its extension."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TypeAlias

from analyzers.compare import Comparison
from analyzers.compare.sweep import Sweep

Result: TypeAlias = Comparison | tuple[Sweep, ...]
"""What a view renders: sides against the first of them, or models at several batch sizes."""

Render = Callable[[Result, int | None], bytes]
_SCREEN = "terminal"


def formats() -> tuple[str, ...]:
    """Extensions of the formats there are, without the dot."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(n for n in names if n != _SCREEN and not n.startswith("_")))


def renderer(extension: str) -> Render:
    """The function that renders one of the `formats`: a result, and how many rows (None: all)."""
    render: Render = importlib.import_module(f"{__name__}.{extension}").render
    return render
