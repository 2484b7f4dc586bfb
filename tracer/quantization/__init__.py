"""Quantise a model with onnxruntime, keep its names, and measure the loss of accuracy."""

import importlib
import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "widths":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    home = f"{__name__}.bit_reduction"
    warnings.warn(f"{__name__}.{name} is now {home}", DeprecationWarning, stacklevel=2)
    return importlib.import_module(home)
