"""Framework models to ONNX, with the same metadata for every framework; see `tracer.api.export`."""

import importlib
import warnings
from typing import Any

_MOVED = {"export": "tracer.api.export", "ExportOptions": "exporters.records"}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'exporters' has no attribute '{name}'")
    moved = f"exporters.{name} moved to {_MOVED[name]}.{name}"
    warnings.warn(moved, DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(_MOVED[name]), name)
