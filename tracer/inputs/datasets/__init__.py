"""Data sets as streams of batches; `opening.open_dataset` opens one by its name."""

import importlib
import warnings
from pathlib import Path
from typing import Any

DEFAULT_FOLDER = Path("data")
"""Where the files of named data sets are, from the current folder."""


def __getattr__(name: str) -> Any:
    if name != "open_dataset":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    home = f"{__name__}.opening"
    warnings.warn(f"{__name__}.{name} is now {home}.{name}", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(home), name)
