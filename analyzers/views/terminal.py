"""The table on a terminal: as many columns as its width has room for, the largest rows first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyzers.grouping import grouped
from analyzers.views import ViewOptions, _headline
from analyzers.views._format import bar, micros, percent, printable, si
from analyzers.views._tables import largest_first, sections

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    from analyzers.views._tables import Section
    from tracer.trace import Trace

    Row = pd.Series[Any]

DEFAULT_TOP = 20
_BAR_CELLS = 8


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, shown where its field is filled and the terminal has room for its rank.

    The lower the rank the sooner a column gets its room. A name may be cut, a number never.
    """

    header: str
    field: str
    text: Callable[[Row], str]
    rank: int
    is_name: bool = False


def _plus_minus(row: Row) -> str:
    return micros(row["time_us_ci95_high"] - row["time_us"])  # the lower end stops at 0


def _field(name: str, text: Callable[[Any], str]) -> Callable[[Row], str]:
    return lambda row: text(row[name])


def _count(value: float) -> str:
    return "" if math.isnan(value) else f"{value:g}"


def _name(value: Any) -> str:
    return printable(value) if isinstance(value, str) else ""


_COLUMNS = (
    _Column("node", "node", _field("node", _name), 0, is_name=True),
    _Column("module", "module", _field("module", _name), 6, is_name=True),
    _Column("op", "op_type", _field("op_type", _name), 3, is_name=True),
    _Column("nodes", "nodes", _field("nodes", _count), 10),
    _Column("calls", "calls", _field("calls", _count), 15),
    _Column("time µs", "time_us", _field("time_us", micros), 1),
    _Column("±", "time_us_ci95_low", _plus_minus, 5),
    _Column("total µs", "time_us_total", _field("time_us_total", micros), 4),
    _Column("µs/call", "time_us_per_call", _field("time_us_per_call", micros), 6),
    _Column("p95", "time_us_p95", _field("time_us_p95", micros), 12),
    _Column("raw µs", "time_us_raw", _field("time_us_raw", micros), 9),
    _Column("share", "time_share", _field("time_share", percent), 2),
    _Column("", "bar", lambda row: bar(row["bar"], _BAR_CELLS), 7),
    _Column("MACs", "macs", _field("macs", si), 4),
    _Column("flops", "flops", _field("flops", si), 11),
    _Column("params", "params", _field("params", si), 8),
    _Column("flop/s", "rate", _field("rate", si), 13),
    _Column("bytes", "bytes_read", lambda row: si(row["bytes_read"] + row["bytes_written"]), 14),
    _Column("flop/B", "intensity", _field("intensity", si), 16),
    _Column("peak B", "peak_bytes", _field("peak_bytes", si), 13),
    _Column("input", "input_shapes", _field("input_shapes", _name), 18, is_name=True),
    _Column("output", "output_shapes", _field("output_shapes", _name), 17, is_name=True),
)
_NAME_LEAST, _NAME_ROOM, _NAME_COMFORT = 6, 15, 30
"""Cells a name asks for to get a column, from narrow terminals to wide ones; and those it gets
before columns of luxury do."""

_SHARE_OF_A_NAME = 6
"""On a terminal of few cells a name asks for a sixth of them."""

_LUXURY = 10
"""The rank from which a column is worth less than names that are not cut."""

_GAP = 2


def render(trace: Trace, options: ViewOptions, console: Console) -> None:
    """Print the tables of all runs to `console`, then what to know about them."""
    from rich.text import Text

    for section in sections(trace):
        _render_section(trace, section, options, console)
    for note in trace.notes:
        console.print(Text(f"note: {printable(note)}", style="yellow"))
    console.print(Text(printable(trace.environment.summary), style="dim"))


def _render_section(trace: Trace, section: Section, options: ViewOptions, console: Console) -> None:
    from rich.text import Text

    console.print(Text(printable(_headline.headline(trace, section)), style="bold"))
    if section.run is not None:
        for line in _headline.verdict(section.run, section.nodes):
            console.print(Text(line))
    rows = _plain(largest_first(grouped(section.nodes, options.by, section.run)))
    top = DEFAULT_TOP if options.top is None else options.top
    shown = rows.head(top) if top else rows
    if len(shown):
        console.print(_table(shown, console.width))
    if len(shown) < len(rows):
        console.print(Text(_hidden(rows, len(shown)), style="dim"))
    console.print(Text(_headline.totals(trace, section.nodes)))


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Numbers as float64, NaN where missing; with the length of the bars, and flop per second."""
    time = rows["time_us"].where(rows["time_us"] > 0)
    rate = 1e6 * rows["flops"] / time
    rows = rows.assign(bar=rows["time_share"] / rows["time_share"].max(), rate=rate)
    return rows.astype({name: "float64" for name in rows.columns if _numeric(rows[name])})


def _numeric(column: pd.Series[Any]) -> bool:
    import pandas as pd

    return pd.api.types.is_numeric_dtype(column)


def _table(rows: pd.DataFrame, width: int) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    filled = [c for c in _COLUMNS if _filled(rows, c.field)]
    texts = {c.header: [c.text(row) for _, row in rows.iterrows()] for c in filled}
    widths = _widths(filled, texts, width)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown = [c for c in filled if c.header in widths]
    for column in shown:
        table.add_column(
            column.header,
            justify="left" if column.is_name or not column.header else "right",
            no_wrap=True,
            overflow="ellipsis",
            width=widths[column.header],
        )
    for cells in zip(*(texts[c.header] for c in shown), strict=True):
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _widths(
    columns: Sequence[_Column], texts: Mapping[str, Sequence[str]], width: int
) -> dict[str, int]:
    """Cells for each column that fits, by header: ranks first, then the names grow."""
    from rich.cells import cell_len

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
    widths: dict[str, int], names: Sequence[_Column], full: Mapping[str, int], room: int, most: int
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


def _hidden(rows: pd.DataFrame, shown: int) -> str:
    field, what = ("time_share", "time") if rows["time_us"].notna().any() else ("macs", "MACs")
    share = rows[field].iloc[shown:].sum() / (rows[field].sum() or 1)
    return f"… {len(rows) - shown:,} more ({share:.1%} of the {what}); --top 0 shows all"
