"""`.md`: the page for a README or an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.fusions.views._pages import page
from analyzers.views._page import markdown

if TYPE_CHECKING:
    from analyzers.fusions import Fusions


def render(found: Fusions) -> bytes:
    """GitHub-flavoured Markdown, UTF-8."""
    return markdown(page(found), None)
