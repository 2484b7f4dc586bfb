"""A page on a terminal: as many columns as its width has room for, the most important notes.

A console of `WITHOUT_EDGE` cells is no terminal: it gets the columns of a Markdown page, uncut.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tracer.analyzers.options import DEFAULT_TOP, ViewOptions
from tracer.analyzers.views import layout
from tracer.analyzers.views.page import Page, Table
from tracer.analyzers.views.text import plural
from tracer.text import line as safe_line

MOST_NOTES = 3
WITHOUT_EDGE = 1 << 20


def show(page: Page, options: ViewOptions, console: Console) -> None:
    """Print chosen sizes, tables, then notes: the first three, or all with `options.notes`."""
    top = DEFAULT_TOP if options.top is None else options.top
    _notes(page.first, console)
    for position, table in enumerate(page.tables):
        if position:
            console.print()
        _show(table, top, console)
    shown = page.remarks if options.notes else page.warnings[:MOST_NOTES]
    _notes(shown, console)
    if len(shown) < len(page.remarks):
        more = plural(len(page.remarks) - len(shown), "more note" if shown else "note")
        console.print(Text(f"{more}: --notes", style="dim"))
    if page.foot:
        console.print(Text(safe_line(page.foot), style="dim"))


def _notes(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        console.print(Text(safe_line(f"note: {note}"), style="yellow"))


def _show(table: Table, top: int, console: Console) -> None:
    if table.title:
        console.print(Text(safe_line(table.title), style="bold"))
    for line in table.head:
        console.print(Text(safe_line(line)))
    columns, rows = table.cells(top, on_page=console.width == WITHOUT_EDGE)
    if columns:
        fitted, remark = layout.fitted(columns, rows, console.width)
        console.print(fitted)
        if remark:
            console.print(Text(remark, style="dim"))
    if len(rows) < len(table.rows) and columns:
        console.print(Text(_hidden(table, len(rows)), style="dim"))
    for line in table.lines:
        console.print(Text(safe_line(line)))
    for line in table.advice:
        console.print(Text(f"- {safe_line(line)}", style="cyan"))


def _hidden(table: Table, shown: int) -> str:
    held = ""
    if table.weight is not None:
        field, what = table.weight
        amounts = table.rows[field]
        share = float(amounts.iloc[shown:].sum() / (amounts.sum() or 1))
        held = f" ({share:.1%} of the {what})"
    return f"… {len(table.rows) - shown:,} more{held}; --top 0 shows all"
