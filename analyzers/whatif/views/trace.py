"""`.trace`: everything that was found, to be rendered again later."""

from __future__ import annotations

from tracer.records.whatif import WhatIf
from tracer.storage import whatif_file


def render(result: WhatIf) -> bytes:
    """The bytes of an SQLite file."""
    return whatif_file.dumps(result)
