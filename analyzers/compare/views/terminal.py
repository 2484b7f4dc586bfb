"""The page on a terminal: as many columns as its width has room for."""

from __future__ import annotations

from rich.console import Console

from analyzers.compare.views import Result
from analyzers.compare.views._pages import page
from analyzers.views._page import printed


def render(result: Result, top: int | None, console: Console) -> None:
    """Print the tables to `console`, then what to know about them."""
    printed(page(result), top, console)
