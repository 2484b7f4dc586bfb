"""The formats in a package of views: each is one module, called by its extension."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

_SCREEN = "terminal"


def names(package: str) -> tuple[str, ...]:
    """Extensions of the formats there are, without the dot; that of a package has two parts."""
    prefix = f"{package}."
    modules = pkgutil.walk_packages(importlib.import_module(package).__path__, prefix)
    found = (m.name.removeprefix(prefix) for m in modules if not m.ispkg)
    return tuple(sorted(n for n in found if n != _SCREEN and "_" not in n))


def render(package: str, extension: str) -> Any:
    """The function `render` of one of them."""
    return importlib.import_module(f"{package}.{extension}").render
