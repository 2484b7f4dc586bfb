"""`.trace`: everything that was found, to be rendered again later."""

from __future__ import annotations

from tracer.whatif import journal
from tracer.whatif.result import WhatIf


def render(result: WhatIf) -> bytes:
    """The bytes of an SQLite file."""
    return journal.dumps(result)
