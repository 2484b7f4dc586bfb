"""The page on a terminal: as many columns as its width has room for."""

from __future__ import annotations

from rich.console import Console

from analyzers.fusions import Fusions
from analyzers.fusions.views._pages import page
from analyzers.views._page import printed


def render(found: Fusions, console: Console) -> None:
    """Print the summary and the map to `console`, then what to know about them."""
    printed(page(found), None, console)
