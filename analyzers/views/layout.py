"""Which columns of a table fit into a terminal, and how wide: names are cut where they must be."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from tracer.analyzers.views.page import Column
from tracer.analyzers.views.short_names import short_names, without_prefix
from tracer.text import printable

_NAME_LEAST, _NAME_ROOM, _NAME_COMFORT = 6, 20, 30
"""Cells that a name needs, on narrow and wide terminals, and its cells before optional columns."""

_BESIDE_A_NAME, _SHARE_OF_A_NAME, _SHARE_OF_OTHERS = 20, 3, 9
"""On a narrow terminal the name of a row needs a third of the cells beyond 20, so that it can be
read on 80; its other names need a ninth of the cells."""

_OPTIONAL = 10
"""Columns of this rank or higher get room only after the names are complete."""

_GAP = 2


def fitted(
    columns: Sequence[Column], rows: Sequence[tuple[str, ...]], width: int
) -> tuple[Table, str]:
    """The `rows` of texts in those of `columns` that fit into `width` cells, and a remark or ''.

    If the names of the rows have no room, the folders that most begin with are left out of them;
    the remark tells these.
    """
    texts = {
        c.header: list(cells) for c, cells in zip(columns, zip(*rows, strict=True), strict=True)
    }
    widths = _widths(columns, texts, width)
    first, remark = min(columns, key=lambda c: c.rank), ""
    if (
        first.is_name
        and first.cut == "middle"
        and _is_cut(texts[first.header], widths[first.header])
    ):
        texts[first.header], prefix = without_prefix(texts[first.header])
        remark = f"… before a name stands for {prefix}" if prefix else ""
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
        if column.is_name:
            texts[column.header] = _cut(column, texts[column.header], widths[column.header])
    for cells in zip(*(texts[c.header] for c in shown), strict=True):
        table.add_row(*(Text(cell) for cell in cells))
    return table, remark


def _is_cut(names: Sequence[str], width: int) -> bool:
    return any(cell_len(name) > width for name in names)


def _cut(column: Column, names: Sequence[str], width: int) -> list[str]:
    """Names cut to `width` cells. Where the end is left out, rich does it."""
    if column.cut == "begin":
        return [_ending(name, width) for name in names]
    if column.cut == "end" or not _is_cut(names, width):
        return list(names)
    return short_names(names, width)


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
            of_name = (width - _BESIDE_A_NAME) // _SHARE_OF_A_NAME
            share = of_name if column is of_row else width // _SHARE_OF_OTHERS
            least = min(least, max(_NAME_LEAST, share), _NAME_ROOM)
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
