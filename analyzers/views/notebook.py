"""A page as a notebook shows it: HTML whose styles are in its elements, for light and dark themes.

Sites that show notebooks remove sheets of styles, and some remove styles: what is left is a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tracer.analyzers.options import DEFAULT_TOP, ViewOptions
from tracer.analyzers.views.page import Column, Page, Table, escaped
from tracer.analyzers.views.text import plural, short_names, without_prefix

_ROOM, _GAP = 110, 2
"""Characters of a row in a cell of usual width, and those between two columns."""
_LONGEST_NAME = 44
_BAR = "bar"
_BAR_CELLS, _BAR_EM = 9, 5
"""Width of the longest bar, in characters and in the unit of its style."""
_TABLE = "border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums"
_CELL = "white-space:nowrap;padding:.15em .6em;text-align:"
_DIM = "opacity:.7"


def notebook_html(page: Page, options: ViewOptions) -> str:
    """The tables of `page`, 10 rows unless `options.top` is set; folds notes without doubts."""
    top = DEFAULT_TOP if options.top is None else options.top
    parts = list(_lines(page.leading))
    for table in page.tables:
        parts += _lines([table.title] if table.title else [], "font-weight:bold;margin-top:.6em")
        parts += _lines(table.head)
        parts += _table(table, top)
        parts += _lines((*table.lines, *table.advice))
    parts += _lines(f"note: {note}" for note in page.doubts)
    others = [note for note in page.remarks if note not in page.doubts]
    if others:
        summary = f'<summary style="cursor:pointer">{plural(len(others), "more note")}</summary>'
        notes = "".join(_lines(others, "margin-left:1em"))
        parts.append(f'<details style="{_DIM}">{summary}{notes}</details>')
    parts += _lines([page.foot] if page.foot else [], _DIM)
    return f'<div style="line-height:1.5;overflow-x:auto">{"".join(parts)}</div>'


def _lines(texts: Iterable[str], style: str = "") -> Iterable[str]:
    return (f'<div style="{style}">{escaped(text)}</div>' for text in texts)


def _table(table: Table, top: int) -> list[str]:
    columns, rows = table.cells(top, on_page=True)
    shown = _fitting(columns, rows)
    if not shown:
        return []
    cells = [_column(columns[place], [row[place] for row in rows], table) for place in shown]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    hidden = len(table.rows) - len(rows)
    more = _lines([f"… {plural(hidden, 'more row')}"] if hidden > 0 else [], _DIM)
    return [f'<table style="{_TABLE}">{body}</table>', *more]


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """Returns the places of the columns that a notebook has room for, by their rank.

    A bar comes first: there is room for names as well.
    """
    room, shown = _ROOM, list[int]()
    ranks = [0 if column.field == _BAR else column.rank for column in columns]
    for place in sorted(range(len(columns)), key=ranks.__getitem__):
        most = _BAR_CELLS if columns[place].field == _BAR else _LONGEST_NAME
        longest = max((len(row[place]) for row in rows), default=0)
        room -= max(len(columns[place].header), min(longest, most)) + _GAP
        if room < 0 and shown:
            break
        shown.append(place)
    return sorted(shown)


def _column(column: Column, texts: Sequence[str], table: Table) -> list[str]:
    """Returns the cells of a column: its header, then each text, name or bar."""
    side = "left" if column.is_name or column.field == _BAR else "right"
    style = f'align="{side}" style="{_CELL}{side}"'
    head = f"<th {style}>{escaped(column.header)}</th>"
    if column.field == _BAR:
        return [
            head,
            *(f"<td {style}>{_bar(share)}</td>" for share in table.rows[_BAR][: len(texts)]),
        ]
    if not column.is_name:
        return [head, *(f"<td {style}>{escaped(text)}</td>" for text in texts)]
    short = list(texts)
    if any(len(text) > _LONGEST_NAME for text in texts):
        short = short_names(without_prefix(texts)[0], _LONGEST_NAME)
    titles = (f' title="{escaped(t)}"' if t != s else "" for t, s in zip(texts, short, strict=True))
    pairs = zip(short, titles, strict=True)
    return [head, *(f"<td {style}{title}>{escaped(text)}</td>" for text, title in pairs)]


def _bar(share: float) -> str:
    if math.isnan(share):
        return ""
    width = f"width:{_BAR_EM * min(max(share, 0), 1):.2f}em"
    return f'<div style="background:#4878a8;height:.8em;{width}"></div>'
