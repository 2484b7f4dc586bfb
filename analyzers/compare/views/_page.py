"""A page: titled tables with lines below them. Terminal and Markdown show the same pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyzers.views._columns import Column
from analyzers.views._format import printable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Table:
    """A title, the columns and the rows; `lines` stand below. `is_long`: may be shortened."""

    title: str
    columns: Sequence[Column]
    rows: pd.DataFrame
    lines: tuple[str, ...] = ()
    is_long: bool = False

    @property
    def filled(self) -> list[Column]:
        """The columns that have anything in them."""
        known = (column for column in self.columns if column.field in self.rows)
        return [column for column in known if self.rows[column.field].notna().any()]


@dataclass(frozen=True, slots=True)
class Page:
    """Tables, and what to know about them."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    foot: str


def figure(header: str, field: str, text: Callable[[float], str], rank: int) -> Column:
    """A column of numbers; '' where there is none."""
    return Column(header, field, lambda row: _known(row[field], text), rank)


def name(header: str, field: str, rank: int) -> Column:
    """A column of names, which a narrow terminal may cut."""
    return Column(header, field, lambda row: _printed(row[field]), rank, is_name=True)


def times(value: float) -> str:
    """A ratio with three digits: `0.983`, `12.4`, `1,234`."""
    if not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}"


def signed_percent(value: float) -> str:
    """`+12.3%`, of a share."""
    return f"{value:+.0%}" if abs(value) >= 10 else f"{value:+.1%}"


def _known(value: Any, text: Callable[[float], str]) -> str:
    import pandas as pd

    return "" if pd.isna(value) else text(float(value))


def _printed(value: Any) -> str:
    return printable(value) if isinstance(value, str) else ""
