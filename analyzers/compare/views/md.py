"""`.md`: the page for a README or an issue."""

from __future__ import annotations

from analyzers.compare.views import Result
from analyzers.compare.views._pages import page
from analyzers.views._page import markdown


def render(result: Result, top: int | None) -> bytes:
    """GitHub-flavoured Markdown, UTF-8."""
    return markdown(page(result), top)
