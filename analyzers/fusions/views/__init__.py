"""Renderings of a map of fusions; a file format is one module, called by its extension."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzers.fusions import Fusions

Render = Callable[["Fusions"], bytes]
_SCREEN = "terminal"


def formats() -> tuple[str, ...]:
    """Extensions of the formats there are, without the dot."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(n for n in names if n != _SCREEN and not n.startswith("_")))


def renderer(extension: str) -> Render:
    """The function that renders one of the `formats`."""
    render: Render = importlib.import_module(f"{__name__}.{extension}").render
    return render
