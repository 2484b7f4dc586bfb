"""The page on a terminal: as many columns as its width has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.compare.views._pages import page
from analyzers.views import _columns
from analyzers.views._format import printable
from analyzers.views.terminal import DEFAULT_TOP

if TYPE_CHECKING:
    from rich.console import Console

    from analyzers.compare.views import Result


def render(result: Result, top: int | None, console: Console) -> None:
    """Print the tables to `console`, then what to know about them."""
    from rich.text import Text

    shown = page(result)
    most = DEFAULT_TOP if top is None else top
    for table in shown.tables:
        rows = table.rows.head(most) if table.is_long and most else table.rows
        console.print(Text(printable(table.title), style="bold"))
        if len(rows):
            console.print(_columns.table(table.columns, rows, console.width))
        if len(rows) < len(table.rows):
            more = len(table.rows) - len(rows)
            console.print(Text(f"… {more:,} more; --top 0 shows all", style="dim"))
        for line in table.lines:
            console.print(Text(printable(line)))
        console.print()
    for note in shown.notes:
        console.print(Text(f"note: {printable(note)}", style="yellow"))
    console.print(Text(printable(shown.foot), style="dim"))
