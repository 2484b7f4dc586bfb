"""What a view shows: the options and their allowed values.

Imports nothing heavy, because every `--help` imports this module.
"""

from tracer.errors import UsageError
from tracer.records.view_options import ViewOptions

__all__ = [
    "ADDITION_CONVENTIONS",
    "DEFAULT_TOP",
    "GROUPINGS",
    "NODE_GROUPINGS",
    "SAMPLE",
    "ViewOptions",
    "refuse_depth",
]

SAMPLE = "sample"
NODE_GROUPINGS = ("node", "op", "module", "source", "kernel")
"""What a row of the node table stands for."""

GROUPINGS = (*NODE_GROUPINGS, SAMPLE)
"""With the samples of a run in narrow accumulators."""

ADDITION_CONVENTIONS = ("plain", "channelwise")
"""How the additions of a convolution are counted: the names in `analyzers.cost.conventions`."""

DEFAULT_TOP = 10
"""Rows that a terminal shows unless `--top` sets another number."""


def refuse_depth(by: str, depth: int | None) -> None:
    """Raise UsageError where a depth is set and rows are not modules."""
    if depth is not None and by != "module":
        raise UsageError("a depth counts levels of modules", "Give --by module with --depth.")
