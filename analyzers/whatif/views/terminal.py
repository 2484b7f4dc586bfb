"""The page on a terminal: as many columns as its width has room for."""

from __future__ import annotations

from rich.console import Console

from analyzers.views._page import printed
from analyzers.whatif.views._pages import page
from tracer.records.whatif import WhatIf


def render(result: WhatIf, top: int | None, console: Console) -> None:
    """Print the answer and the tables to `console`, then what to know about them."""
    printed(page(result), top, console)
