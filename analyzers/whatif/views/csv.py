"""`.csv`: a row for each width of each variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.views.csv import encoded
from analyzers.whatif.views._widths import table

if TYPE_CHECKING:
    from tracer.whatif.result import WhatIf


def render(result: WhatIf) -> bytes:
    """UTF-8 CSV with a header; a missing value is an empty cell."""
    return encoded(table(result))
