"""What a view shows: the options and their allowed values.

Imports nothing heavy, because every `--help` imports this module.
"""

from dataclasses import dataclass

from tracer.errors import UsageError

GROUPINGS = ("node", "op", "module", "source", "kernel")
"""What a row of the node table stands for."""

ADDITION_CONVENTIONS = ("plain", "channelwise")
"""How the additions of a convolution are counted: the names in `analyzers.cost.conventions`."""

DEFAULT_TOP = 10
"""Rows that a terminal shows unless `--top` sets another number."""


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Which rows a view shows: the grouping, the number of rows, the chart's threshold in µs.

    `top` is None for the view's default, 0 for all rows. `depth` is the number of module levels
    that stay apart, None for all. `notes` shows every note instead of the most important ones.
    """

    by: str = "node"
    top: int | None = None
    threshold: float | None = None
    depth: int | None = None
    notes: bool = False


def refuse_depth(by: str, depth: int | None) -> None:
    """Raise UsageError where a depth is set and rows are not modules."""
    if depth is not None and by != "module":
        raise UsageError("a depth counts levels of modules", "Give --by module with --depth.")
