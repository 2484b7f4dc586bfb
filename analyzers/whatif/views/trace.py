"""`.trace`: everything that was found, to be rendered again later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.whatif.result import WhatIf


def render(result: WhatIf) -> bytes:
    """The bytes of an SQLite file."""
    from tracer.whatif import journal

    return journal.dumps(result)
