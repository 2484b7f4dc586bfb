"""The table on a terminal: as many columns as its width has room for, the largest rows first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from analyzers.grouping import grouped
from analyzers.views import ViewOptions, _headline
from analyzers.views._format import bar, micros, percent, printable, si
from analyzers.views._layout import Column, laid_out
from analyzers.views._tables import largest_first, sections

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from analyzers.views._tables import Section
    from tracer.trace import Trace

    Row = pd.Series[Any]

DEFAULT_TOP = 20
_BAR_CELLS = 8


def _plus_minus(row: Row) -> str:
    return micros(row["time_us_ci95_high"] - row["time_us"])  # the lower end stops at 0


def _field(name: str, text: Callable[[Any], str]) -> Callable[[Row], str]:
    return lambda row: text(row[name])


def _count(value: float) -> str:
    return "" if math.isnan(value) else f"{value:g}"


def _name(value: Any) -> str:
    return printable(value) if isinstance(value, str) else ""


_COLUMNS = (
    Column("node", "node", _field("node", _name), 0, is_name=True),
    Column("module", "module", _field("module", _name), 6, is_name=True),
    Column("op", "op_type", _field("op_type", _name), 3, is_name=True),
    Column("nodes", "nodes", _field("nodes", _count), 10),
    Column("calls", "calls", _field("calls", _count), 15),
    Column("time µs", "time_us", _field("time_us", micros), 1),
    Column("±", "time_us_ci95_low", _plus_minus, 5),
    Column("total µs", "time_us_total", _field("time_us_total", micros), 4),
    Column("µs/call", "time_us_per_call", _field("time_us_per_call", micros), 6),
    Column("p95", "time_us_p95", _field("time_us_p95", micros), 12),
    Column("raw µs", "time_us_raw", _field("time_us_raw", micros), 9),
    Column("share", "time_share", _field("time_share", percent), 2),
    Column("", "bar", lambda row: bar(row["bar"], _BAR_CELLS), 7),
    Column("MACs", "macs", _field("macs", si), 4),
    Column("flops", "flops", _field("flops", si), 11),
    Column("params", "params", _field("params", si), 8),
    Column("flop/s", "rate", _field("rate", si), 13),
    Column("bytes", "bytes_read", lambda row: si(row["bytes_read"] + row["bytes_written"]), 14),
    Column("flop/B", "intensity", _field("intensity", si), 16),
    Column("peak B", "peak_bytes", _field("peak_bytes", si), 13),
    Column("input", "input_shapes", _field("input_shapes", _name), 18, is_name=True),
    Column("output", "output_shapes", _field("output_shapes", _name), 17, is_name=True),
)


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
        filled = [c for c in _COLUMNS if _filled(shown, c.field)]
        console.print(laid_out(filled, shown, console.width))
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


def _filled(rows: pd.DataFrame, field: str) -> bool:
    if field == "nodes":  # told only where rows are folded
        return bool((rows[field] > 1).any())
    return field in rows and bool(rows[field].notna().any())


def _hidden(rows: pd.DataFrame, shown: int) -> str:
    field, what = ("time_share", "time") if rows["time_us"].notna().any() else ("macs", "MACs")
    share = rows[field].iloc[shown:].sum() / (rows[field].sum() or 1)
    return f"… {len(rows) - shown:,} more ({share:.1%} of the {what}); --top 0 shows all"
