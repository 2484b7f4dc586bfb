"""A page on a terminal: as many columns as its width has room for, and notes that cast doubt.

A console of `WITHOUT_EDGE` cells is no terminal: it gets the columns of a Markdown page, uncut.
"""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from tracer.analyzers.options import DEFAULT_TOP, ViewOptions
from tracer.analyzers.views.page import Column, Page, Table
from tracer.analyzers.views.text import plural, short_names, without_prefix
from tracer.text import line as safe_line
from tracer.text import printable

_NAME_LEAST, _NAME_ROOM, _NAME_PART, _NAME_COMFORT = 6, 20, 16, 40
"""Cells that a name needs, on narrow and wide terminals; its cells before the name of a row has
those of comfort, and before optional columns."""
_TEXT_LEAST = 24
"""Cells of a sentence, which wraps."""

_BESIDE_A_NAME, _SHARE_OF_A_NAME, _SHARE_OF_OTHERS = 20, 3, 9
"""On a narrow terminal the name of a row needs a third of the cells beyond 20, so that it can be
read on 80; its other names need a ninth of the cells."""

_SHARE_OF_OPERATORS = 5
"""Operators take no more than a fifth of a terminal before columns of numbers have room."""

_OPTIONAL = 5
"""Columns of this rank or higher get room only after the names have theirs, up to comfort or half
of the terminal: what tells rows apart comes before other numbers."""

_GAP = 2

WITHOUT_EDGE = 1 << 20


def show(page: Page, options: ViewOptions, console: Console) -> None:
    """Print chosen sizes, tables, then notes: those that cast doubt, or all of them."""
    top = DEFAULT_TOP if options.top is None else options.top
    _show_notes(page.leading, console)
    for position, table in enumerate(page.tables):
        if position:
            console.print()
        _show_table(table, top, console)
    shown = page.remarks if options.notes else page.doubts
    _show_notes(shown, console)
    if len(shown) < len(page.remarks):
        count = plural(len(page.remarks) - len(shown), "more note" if shown else "note")
        them = "it" if count.startswith("1 ") else "them"
        console.print(Text(f"{count}: -v shows {them}", style="dim"))
    if page.foot:
        console.print(Text(safe_line(page.foot), style="dim"))


def _show_notes(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        console.print(Text.assemble(("note: ", "bold magenta"), safe_line(note)))


def _show_table(table: Table, top: int, console: Console) -> None:
    if table.title:
        console.print(Text(safe_line(table.title), style="bold"))
    for line in table.head:
        console.print(Text(safe_line(line)))
    columns, rows = table.cells(top, on_page=console.width == WITHOUT_EDGE)
    if columns:
        grid, remark = _fit(columns, rows, console.width)
        console.print(grid)
        if remark:
            console.print(Text(remark, style="dim"))
    if len(rows) < len(table.rows) and columns:
        part = ""
        if table.weight is not None:
            field, what = table.weight
            amounts = table.rows[field]
            share = float(amounts.iloc[len(rows) :].sum() / (amounts.sum() or 1))
            part = f" ({share:.1%} of the {what})"
        hidden = f"… {len(table.rows) - len(rows):,} more{part}; --top 0 shows all"
        console.print(Text(hidden, style="dim"))
    for line in table.lines:
        console.print(Text(safe_line(line)))
    for line in table.advice:
        console.print(Text.assemble(("- ", "bold magenta"), safe_line(line)))


def _fit(
    columns: Sequence[Column], rows: Sequence[tuple[str, ...]], width: int
) -> tuple[Grid, str]:
    """The `rows` of texts in those of `columns` that fit into `width` cells, and a remark or ''.

    If names have no room, the folders that most begin with are left out of them; the remark tells
    these. What is cut then leaves no two names the same.
    """
    texts = {
        c.header: list(cells) for c, cells in zip(columns, zip(*rows, strict=True), strict=True)
    }
    widths, remarks = _widths(columns, texts, width), list[str]()
    for column in columns:
        names = texts[column.header]
        if not column.is_name or not _is_cut(names, widths.get(column.header)):
            continue
        if column.cut == "end":
            most = max(width // _SHARE_OF_OPERATORS, widths.get(column.header, 0))
            texts[column.header] = short_names(names, most, column.cut)
        elif column.cut == "middle":
            texts[column.header], prefix = without_prefix(names)
            remarks += [f"{prefix} in {column.header}"] if prefix else []
    widths = _widths(columns, texts, width)
    table = Grid(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown = [c for c in columns if c.header in widths]
    for column in shown:
        names, most = texts[column.header], widths[column.header]
        table.add_column(
            Text(printable(column.header)),
            justify="left" if column.is_name or not column.header else "right",
            no_wrap=column.cut != "text",
            overflow="fold" if column.cut == "text" else "ellipsis",
            width=most,
        )
        if column.is_name and column.cut != "text" and _is_cut(names, most):
            texts[column.header] = short_names(names, most, column.cut)
    for cells in zip(*(texts[c.header] for c in shown), strict=True):
        table.add_row(*(Text(cell) for cell in cells))
    return table, f"… stands for {', '.join(remarks)}" if remarks else ""


def _is_cut(names: Sequence[str], width: int | None) -> bool:
    return width is None or any(cell_len(name) > width for name in names)


def _widths(
    columns: Sequence[Column], texts: Mapping[str, Sequence[str]], width: int
) -> dict[str, int]:
    """Returns the cells of each column that fits, by header: by rank, then the names grow."""
    full = {c.header: max(map(cell_len, (c.header, *texts[c.header]))) for c in columns}
    names = [c for c in columns if c.is_name]
    of_row = min(columns, key=lambda c: c.rank)
    room = width - 1
    widths: dict[str, int] = {}
    for column in sorted(columns, key=lambda c: c.rank):
        if column.rank >= _OPTIONAL:
            for most in (_NAME_PART, min(width // 2, _NAME_COMFORT)):
                room -= _grow(widths, names, full, room, most)
        least = full[column.header]
        if column.cut == "text":
            least = min(least, _TEXT_LEAST)
        elif column.is_name:
            of_name = (width - _BESIDE_A_NAME) // _SHARE_OF_A_NAME
            share = of_name if column is of_row else width // _SHARE_OF_OTHERS
            least = min(least, max(_NAME_LEAST, share), _NAME_ROOM)
        if least + _GAP > room:
            break
        widths[column.header] = least
        room -= least + _GAP
    _grow(widths, names, full, room, _SHARE_OF_OPERATORS * width)
    return widths


def _grow(
    widths: dict[str, int], names: Sequence[Column], full: Mapping[str, int], room: int, most: int
) -> int:
    """Widens the visible names up to `most` cells: that of the row, then short names first.

    Returns the cells used.
    """
    taken, ranks = 0, [name.rank for name in names]
    for name in sorted(names, key=lambda each: (each.rank > min(ranks), full[each.header])):
        if name.header in widths:
            share = most * 2 // _SHARE_OF_OPERATORS if name.cut == "end" else most
            room_for = min(full[name.header], share) - widths[name.header]
            more = max(0, min(room - taken, room_for))
            widths[name.header] += more
            taken += more
    return taken
