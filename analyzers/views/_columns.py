"""Tables as wide as a terminal: the columns that have room, names cut where they must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from analyzers.views._format import printable

Row: TypeAlias = "pd.Series[Any]"


@dataclass(frozen=True, slots=True)
class Column:
    """A column, shown where its field is filled and the terminal has room for its rank.

    The lower the rank the sooner a column gets its room. A name may be cut, a number never; of
    one that `ends_apart`, as `folder/file.py:36` does, the end is what stays.
    """

    header: str
    field: str
    text: Callable[[Row], str]
    rank: int
    is_name: bool = False
    ends_apart: bool = False


_NAME_LEAST, _NAME_ROOM, _NAME_COMFORT = 6, 15, 30
"""Cells a name asks for to get a column, from narrow terminals to wide ones; and those it gets
before columns of luxury do."""

_SHARE_OF_A_NAME = 6
"""On a terminal of few cells a name asks for a sixth of them."""

_LUXURY = 10
"""The rank from which a column is worth less than names that are not cut."""

_GAP = 2


def field(name: str, text: Callable[[Any], str]) -> Callable[[Row], str]:
    """The text of one cell of a row."""
    return lambda row: text(row[name])


def count(value: float) -> str:
    """A number as short as it can be; '' where it is not known."""
    return "" if math.isnan(value) else f"{value:g}"


def name(value: Any) -> str:
    """A name from a file, safe to show; '' where there is none."""
    return printable(value) if isinstance(value, str) else ""


def named_by(field: str, columns: Sequence[Column]) -> Sequence[Column]:
    """The columns, of which the one that names the rows gets its room before all others."""
    return [replace(column, rank=0) if column.field == field else column for column in columns]


def table(columns: Sequence[Column], rows: pd.DataFrame, width: int) -> Table:
    """`rows` in those of `columns` that are filled and have room; cells see numbers as floats."""
    rows = rows.astype({name: "float64" for name in rows.columns if _numeric(rows[name])})
    filled = [c for c in columns if _filled(rows, c.field)]
    texts = {c.header: [c.text(row) for _, row in rows.iterrows()] for c in filled}
    widths = _widths(filled, texts, width)
    made = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown = [c for c in filled if c.header in widths]
    for column in shown:
        made.add_column(
            column.header,
            justify="left" if column.is_name or not column.header else "right",
            no_wrap=True,
            overflow="ellipsis",
            width=widths[column.header],
        )
    for c in shown:
        if c.ends_apart:
            texts[c.header] = [_ending(text, widths[c.header]) for text in texts[c.header]]
    for cells in zip(*(texts[c.header] for c in shown), strict=True):
        made.add_row(*(Text(cell) for cell in cells))
    return made


def _ending(text: str, width: int) -> str:
    """As much of the end of `text` as fits after an ellipsis."""
    if cell_len(text) <= width:
        return text
    while cell_len(text) >= width:
        text = text[1:]
    return f"…{text}"


def _widths(
    columns: Sequence[Column], texts: Mapping[str, Sequence[str]], width: int
) -> dict[str, int]:
    """Cells for each column that fits, by header: ranks first, then the names grow."""
    full = {c.header: max(map(cell_len, (c.header, *texts[c.header]))) for c in columns}
    names = [c for c in columns if c.is_name]
    name_room = min(max(_NAME_LEAST, width // _SHARE_OF_A_NAME), _NAME_ROOM)
    room = width - 1
    widths: dict[str, int] = {}
    for column in sorted(columns, key=lambda c: c.rank):
        if column.rank >= _LUXURY:
            room -= _grow(widths, names, full, room, _NAME_COMFORT)
        least = full[column.header]
        least = min(least, name_room) if column.is_name else least
        if least + _GAP > room:
            break
        widths[column.header] = least
        room -= least + _GAP
    _grow(widths, names, full, room, width)
    return widths


def _grow(
    widths: dict[str, int], names: Sequence[Column], full: Mapping[str, int], room: int, most: int
) -> int:
    """Widen the names that are shown, up to `most` cells each; returns the cells it took."""
    taken = 0
    for name in names:
        if name.header in widths:
            wanted = min(full[name.header], most) - widths[name.header]
            more = max(0, min(room - taken, wanted))
            widths[name.header] += more
            taken += more
    return taken


def _filled(rows: pd.DataFrame, field: str) -> bool:
    if field == "nodes":  # told only where rows are folded
        return bool((rows[field] > 1).any())
    return field in rows and bool(rows[field].notna().any())


def _numeric(column: pd.Series[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(column)
