"""A page: titled tables with lines about them. Terminal and Markdown show the same pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from analyzers.options import DEFAULT_TOP
from analyzers.views import _columns
from analyzers.views._columns import Column
from analyzers.views._format import cell, printable


@dataclass(frozen=True, slots=True)
class Table:
    """A title, the columns and the rows; `head` stands above, `lines` below the rows.

    `is_long`: may be shortened.
    """

    title: str
    columns: Sequence[Column]
    rows: pd.DataFrame
    lines: tuple[str, ...] = ()
    is_long: bool = False
    head: tuple[str, ...] = ()

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


def printed(page: Page, top: int | None, console: Console) -> None:
    """Print the tables, as many columns as there is room for, then what to know about them."""
    most = DEFAULT_TOP if top is None else top
    for table in page.tables:
        rows = table.rows.head(most) if table.is_long and most else table.rows
        console.print(Text(printable(table.title), style="bold"))
        for line in table.head:
            console.print(Text(printable(line)))
        if len(rows):
            console.print(_columns.table(table.columns, rows, console.width))
        if len(rows) < len(table.rows):
            more = len(table.rows) - len(rows)
            console.print(Text(f"… {more:,} more; --top 0 shows all", style="dim"))
        for line in table.lines:
            console.print(Text(printable(line)))
        console.print()
    for note in page.notes:
        console.print(Text(f"note: {printable(note)}", style="yellow"))
    console.print(Text(printable(page.foot), style="dim"))


def markdown(page: Page, top: int | None) -> bytes:
    """GitHub-flavoured Markdown, UTF-8; columns nobody filled are left out."""
    lines: list[str] = []
    for table in page.tables:
        columns = table.filled
        rows = table.rows.head(top) if table.is_long and top else table.rows
        lines += [f"### {cell(table.title)}", ""]
        if table.head:
            lines += [*(f"- {cell(line)}" for line in table.head), ""]
        lines.append("| " + " | ".join(cell(column.header) for column in columns) + " |")
        lines.append("|" + "|".join("---" if c.is_name else "---:" for c in columns) + "|")
        for _, row in rows.iterrows():
            lines.append("| " + " | ".join(cell(c.text(row).strip()) for c in columns) + " |")
        lines += ["", *(f"- {cell(line)}" for line in table.lines), ""]
    lines += [f"- note: {cell(note)}" for note in page.notes]
    lines.append(f"- {cell(page.foot)}")
    return ("\n".join(lines) + "\n").encode()


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
    return "" if pd.isna(value) else text(float(value))


def _printed(value: Any) -> str:
    return printable(value) if isinstance(value, str) else ""
