"""The list of the named accumulators, for a terminal: a table, or lines where it is narrow."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracer.accumulators import hardware
from tracer.accumulators.spec import kinds

_UNBROKEN = ("name", "kind")
"""Columns whose cells are never continued on a second line."""

_FEWEST_COLUMNS = 120
"""Columns of a terminal that five cells of a row fit beside each other."""

_INDENT = (0, 0, 0, 4)


def show(console: Console) -> None:
    """Prints each preset, and below them how other accumulators are written."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("name", "kind", "what", "source", "status"):
        table.add_column(header, no_wrap=header in _UNBROKEN, overflow="fold")
    for preset in hardware.presets().values():
        kind = preset.accumulator.kind
        table.add_row(*map(Text, (preset.name, kind, preset.what, preset.source, preset.status)))
        if console.width < _FEWEST_COLUMNS:
            console.print(Text(f"{preset.name}: {kind}, {preset.status}"))
            for text in (preset.what, preset.source):
                console.print(Padding(Text(text), _INDENT))
    if console.width >= _FEWEST_COLUMNS:
        console.print(table)
    console.print(
        Text(f"Other accumulators are written as {kinds.examples()}: tracer docs hardware")
    )
