"""What a view shows: the options and their allowed values.

Imports nothing heavy, because every `--help` imports this module.
"""

import pkgutil
from pathlib import Path

from tracer.errors import UsageError
from tracer.records.view_options import ViewOptions

__all__ = [
    "ADDITION_CONVENTIONS",
    "DEFAULT_ENERGY_MODEL",
    "DEFAULT_TOP",
    "GROUPINGS",
    "ViewOptions",
    "energy_models",
    "refuse_depth",
]

GROUPINGS = ("node", "op", "module", "source", "kernel")
"""What a row of the node table stands for."""

ADDITION_CONVENTIONS = ("plain", "channelwise")
"""How the additions of a convolution are counted: the names in `analyzers.cost.conventions`."""

DEFAULT_ENERGY_MODEL = "lab"
"""The energy model of narrow accumulators unless `--energy` names another."""

DEFAULT_TOP = 10
"""Rows that a terminal shows unless `--top` sets another number."""


def refuse_depth(by: str, depth: int | None) -> None:
    """Raise UsageError where a depth is set and rows are not modules."""
    if depth is not None and by != "module":
        raise UsageError("a depth counts levels of modules", "Give --by module with --depth.")


def energy_models() -> tuple[str, ...]:
    """Returns the names of the energy models: the modules of `analyzers.energy.models`."""
    folder = Path(__file__).parent / "energy" / "models"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))
