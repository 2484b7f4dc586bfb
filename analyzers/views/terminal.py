"""The table on a terminal: as many columns as its width has room for, the largest rows first."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.text import Text

from analyzers.advice import advise
from analyzers.grouping import NAMES, remark
from analyzers.options import DEFAULT_TOP
from analyzers.views import ViewOptions, _headline, _overflow
from analyzers.views._columns import Column, Row, count, field, name, named_by, table
from analyzers.views._format import bar, micros, percent, printable, roof, si
from analyzers.views._tables import Section, folded, largest_first, sections
from tracer.records.trace import Trace

_BAR_CELLS = 8


def _plus_minus(row: Row) -> str:
    return micros(row["time_us_ci95_high"] - row["time_us"])  # the lower end stops at 0


_COLUMNS = (
    Column("node", "node", field("node", name), 0, is_name=True),
    Column("module", "module", field("module", name), 6, is_name=True),
    Column("source", "source", field("source", name), 19, is_name=True, ends_apart=True),
    Column("op", "op_type", field("op_type", name), 3, is_name=True),
    Column("nodes", "nodes", field("nodes", count), 10),
    Column("calls", "calls", field("calls", count), 15),
    Column("time µs", "time_us", field("time_us", micros), 1),
    Column("±", "time_us_ci95_low", _plus_minus, 5),
    Column("total µs", "time_us_total", field("time_us_total", micros), 4),
    Column("µs/call", "time_us_per_call", field("time_us_per_call", micros), 6),
    Column("p95", "time_us_p95", field("time_us_p95", micros), 12),
    Column("raw µs", "time_us_raw", field("time_us_raw", micros), 9),
    Column("replayed µs", "time_us_replayed", field("time_us_replayed", micros), 3),
    Column("share", "time_share", field("time_share", percent), 2),
    Column("", "bar", lambda row: bar(row["bar"], _BAR_CELLS), 7),
    Column("min", "value_min", field("value_min", count), 4),
    Column("max", "value_max", field("value_max", count), 4),
    Column("mean", "value_mean", field("value_mean", count), 7),
    Column("max abs", "difference_max_abs", field("difference_max_abs", count), 2),
    Column("max rel", "difference_max_rel", field("difference_max_rel", count), 2),
    Column("ULP", "difference_max_ulp", field("difference_max_ulp", count), 3),
    Column("MACs", "macs", field("macs", si), 4),
    Column("flops", "flops", field("flops", si), 11),
    Column("params", "params", field("params", si), 8),
    Column("GFLOP/s", "gflops_per_s", field("gflops_per_s", si), 10),
    Column("GB/s", "gbytes_per_s", field("gbytes_per_s", si), 13),
    Column("roof", "roof_fraction", field("roof_fraction", roof), 8),
    Column("bound", "bound", field("bound", name), 9),
    Column("bytes", "bytes_read", lambda row: si(row["bytes_read"] + row["bytes_written"]), 14),
    Column("flop/B", "intensity", field("intensity", si), 16),
    Column("peak B", "peak_bytes", field("peak_bytes", si), 13),
    Column("arena B", "arena_bytes", field("arena_bytes", si), 19),
    Column("also holds", "also_holds", field("also_holds", name), 5, is_name=True),
    Column("timed in", "timed_in", field("timed_in", name), 9, is_name=True),
    Column("input", "input_shapes", field("input_shapes", name), 18, is_name=True),
    Column("output", "output_shapes", field("output_shapes", name), 17, is_name=True),
)


def render(trace: Trace, options: ViewOptions, console: Console) -> None:
    """Print the tables of all runs to `console`, then what to know about them."""
    for section in sections(trace):
        _render_section(trace, section, options, console)
    for note in trace.notes:
        console.print(Text(f"note: {printable(note)}", style="yellow"))
    console.print(Text(printable(trace.environment.summary), style="dim"))


def _render_section(trace: Trace, section: Section, options: ViewOptions, console: Console) -> None:
    found = folded(section, options)
    top = DEFAULT_TOP if options.top is None else options.top
    console.print(Text(printable(_headline.headline(trace, section)), style="bold"))
    if _overflow.known(section.nodes):
        _overflow.render(section.nodes, found, NAMES[options.by], top, console)
    if section.run is not None:
        for line in _headline.verdict(section.run, section.nodes):
            console.print(Text(line))
    rows = largest_first(found)
    share = rows["time_share"]
    rows = rows.assign(bar=share / share.max())
    shown = rows.head(top) if top else rows
    if len(shown):
        console.print(table(named_by(NAMES[options.by], _COLUMNS), shown, console.width))
    if len(shown) < len(rows):
        console.print(Text(_hidden(rows, len(shown)), style="dim"))
    said = remark(found, options.by)
    if said:
        console.print(Text(printable(said), style="yellow"))
    console.print(Text(_headline.totals(trace, section.nodes)))
    for line in (*_headline.memory(section), *_headline.roofs(trace.environment.peaks)):
        console.print(Text(line))
    for advice in advise(trace, section.run, section.nodes):
        console.print(Text(f"- {advice.text}", style="cyan"))


def _hidden(rows: pd.DataFrame, shown: int) -> str:
    field, what = ("time_share", "time") if rows["time_us"].notna().any() else ("macs", "MACs")
    share = rows[field].iloc[shown:].sum() / (rows[field].sum() or 1)
    return f"… {len(rows) - shown:,} more ({share:.1%} of the {what}); --top 0 shows all"
