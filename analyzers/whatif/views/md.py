"""`.md`: the page for a README or an issue."""

from __future__ import annotations

from analyzers.views._page import markdown
from analyzers.whatif.views._pages import page
from tracer.records.whatif import WhatIf


def render(result: WhatIf) -> bytes:
    """GitHub-flavoured Markdown, UTF-8."""
    return markdown(page(result), None)
