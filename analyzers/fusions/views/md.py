"""`.md`: the page for a README or an issue."""

from __future__ import annotations

from analyzers.fusions import Fusions
from analyzers.fusions.views._pages import page
from analyzers.views._page import markdown


def render(found: Fusions) -> bytes:
    """GitHub-flavoured Markdown, UTF-8."""
    return markdown(page(found), None)
