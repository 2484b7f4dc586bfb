"""The list of the named accumulators, for a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracer.accumulators import hardware
from tracer.accumulators.spec import kinds

_WHOLE = ("name", "kind")
"""Columns whose cells are never continued on a second line."""


def show(console: Console) -> None:
    """Prints a row for each preset, and below them how other accumulators are written."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("name", "kind", "what", "source", "status"):
        table.add_column(header, no_wrap=header in _WHOLE, overflow="fold")
    for preset in hardware.presets().values():
        cells = (
            preset.name, preset.accumulator.kind, preset.what, preset.source, preset.status
        )  # fmt: skip
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(Text(f"Other accumulators are written as {kinds.examples()}: docs/hardware.md"))
