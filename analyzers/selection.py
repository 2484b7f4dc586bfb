"""Rows of the node table that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tracer.trace import Run


def rows_of(nodes: pd.DataFrame, run: Run) -> pd.DataFrame:
    """The rows that one run made: those of its executor and batch."""
    same_batch = nodes["batch"].isna() if run.batch is None else nodes["batch"] == run.batch
    return nodes[(nodes["executor"] == run.executor) & same_batch.fillna(False)]
