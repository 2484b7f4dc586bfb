"""The table that the tabular formats share: all rows, or the folded and shortened ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from analyzers.views import ViewOptions
    from tracer.trace import Trace


def table(trace: Trace, options: ViewOptions) -> pd.DataFrame:
    """Rows of every run; by node the table as it is, else folded run by run and sorted by time."""
    import pandas as pd

    parts = [_shown(nodes, options) for nodes in split(trace.nodes)]
    return pd.concat(parts, ignore_index=True) if parts else trace.nodes.copy()


def split(nodes: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each run, in the order of the table."""
    keys = ["executor", "batch"]
    return [part for _, part in nodes.groupby(keys, sort=False, dropna=False)]


def _shown(nodes: pd.DataFrame, options: ViewOptions) -> pd.DataFrame:
    from analyzers.grouping import grouped

    if options.by == "node":
        return nodes.head(options.top) if options.top else nodes
    folded = grouped(nodes, options.by)
    for key in ("batch", "executor"):
        folded.insert(0, key, nodes[key].iloc[0])
    folded = folded.sort_values("time_us", ascending=False, kind="stable")
    return folded.head(options.top) if options.top else folded
