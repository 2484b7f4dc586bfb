"""Which columns of a table fit into a terminal, and how wide: names are cut where they must be."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from analyzers.views.page import Column
from tracer.text import printable

_NAME_LEAST, _NAME_ROOM, _NAME_COMFORT = 6, 15, 30
"""Cells that a name needs, on narrow and wide terminals, and its cells before optional columns."""

_SHARE_OF_A_NAME, _SHARE_OF_OTHERS = 6, 9
"""On a narrow terminal the name of a row needs a sixth of the cells, its other names a ninth."""

_OPTIONAL = 10
"""Columns of this rank or higher get room only after the names are complete."""

_GAP = 2


def fitted(columns: Sequence[Column], rows: Sequence[tuple[str, ...]], width: int) -> Table:
    """The `rows` of texts in those of `columns` that fit into `width` cells."""
    texts = {
        c.header: list(cells) for c, cells in zip(columns, zip(*rows, strict=True), strict=True)
    }
    widths = _widths(columns, texts, width)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown = [c for c in columns if c.header in widths]
    for column in shown:
        table.add_column(
            Text(printable(column.header)),
            justify="left" if column.is_name or not column.header else "right",
            no_wrap=True,
            overflow="ellipsis",
            width=widths[column.header],
        )
        if column.ends_apart:
            room = widths[column.header]
            texts[column.header] = [_ending(text, room) for text in texts[column.header]]
    for cells in zip(*(texts[c.header] for c in shown), strict=True):
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _ending(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    while cell_len(text) >= width:
        text = text[1:]
    return f"…{text}"


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
            room -= _grow(widths, names, full, room, _NAME_COMFORT)
        least = full[column.header]
        if column.is_name:
            share = _SHARE_OF_A_NAME if column is of_row else _SHARE_OF_OTHERS
            least = min(least, max(_NAME_LEAST, width // share), _NAME_ROOM)
        if least + _GAP > room:
            break
        widths[column.header] = least
        room -= least + _GAP
    _grow(widths, names, full, room, width)
    return widths


def _grow(
    widths: dict[str, int], names: Sequence[Column], full: Mapping[str, int], room: int, most: int
) -> int:
    """Widens the visible names, short names first, up to `most` cells; returns the cells used."""
    taken = 0
    for name in sorted(names, key=lambda column: full[column.header]):
        if name.header in widths:
            room_for = min(full[name.header], most) - widths[name.header]
            more = max(0, min(room - taken, room_for))
            widths[name.header] += more
            taken += more
    return taken
