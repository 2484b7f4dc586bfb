"""The scores of a comparison as a table: a row for each metric and side."""

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from tracer.analyzers.compare.numbers import Scores
from tracer.analyzers.compare.views.comparison.cells import INTERVAL
from tracer.analyzers.views.page import Column, Row, Table, name_column
from tracer.analyzers.views.text import plural, score


def scores_table(scores: Sequence[Scores]) -> Table:
    """The value of each metric on A and on the other side, and the change."""
    columns = (
        name_column("metric", "named", 0),
        name_column("side", "side", 1),
        Column("A", "first_value", lambda row: _score(row, "first_value"), 3),
        Column("side's", "value", lambda row: _score(row, "value"), 2),
        Column("change", "change", lambda row: _signed(row, "change"), 4),
        Column(INTERVAL, "low", _interval, 5),
    )
    rows = pd.DataFrame([asdict(each) for each in scores])
    rows["named"] = [f"{each.metric} {each.unit}".strip() for each in scores]
    first = scores[0]
    title = f"Accuracy on {plural(first.samples, 'sample')} of {first.data}"
    return Table(title, columns, rows)


def _score(row: Row, field: str) -> str:
    return "" if pd.isna(row[field]) else score(float(row[field]), str(row["unit"]))


def _signed(row: Row, field: str) -> str:
    return "" if pd.isna(row[field]) else f"{float(row[field]):+.4f}"


def _interval(row: Row) -> str:
    low, high = _signed(row, "low"), _signed(row, "high")
    return f"{low} to {high}" if low else ""
