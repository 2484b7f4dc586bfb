"""Framework models to ONNX, with the same metadata whatever the framework.

The public names load when they are first used: the command line imports this package at start.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporters.exporting import export
    from exporters.records import ExportOptions

__all__ = ["ExportOptions", "export"]

_MODULES = {"export": "exporters.exporting", "ExportOptions": "exporters.records"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'exporters' has no attribute '{name}'")
