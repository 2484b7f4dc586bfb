"""The list of the named accumulators, for a terminal: a table, or lines where it is narrow."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracer.accumulators import hardware
from tracer.accumulators.spec import kinds

_WHOLE = ("name", "kind")
"""Columns whose cells are never continued on a second line."""


_FEWEST_COLUMNS = 120
"""Columns of a terminal that five cells of a row fit beside each other."""
_INDENT = (0, 0, 0, 4)


def show(console: Console) -> None:
    """Prints each preset, and below them how other accumulators are written."""
    if console.width < _FEWEST_COLUMNS:
        _show_lines(console)
    else:
        _show_table(console)
    console.print(Text(f"Other accumulators are written as {kinds.examples()}: docs/hardware.md"))


def _show_table(console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("name", "kind", "what", "source", "status"):
        table.add_column(header, no_wrap=header in _WHOLE, overflow="fold")
    for preset in hardware.presets().values():
        cells = (
            preset.name, preset.accumulator.kind, preset.what, preset.source, preset.status
        )  # fmt: skip
        table.add_row(*map(Text, cells))
    console.print(table)


def _show_lines(console: Console) -> None:
    """Prints name, kind and status on a line, and below it what it does and the source."""
    for preset in hardware.presets().values():
        console.print(Text(f"{preset.name}: {preset.accumulator.kind}, {preset.status}"))
        for text in (preset.what, preset.source):
            console.print(Padding(Text(text), _INDENT))
