"""`.csv`: a row for each width of each variant."""

from __future__ import annotations

from analyzers.views.csv import encoded
from analyzers.whatif.views._widths import table
from tracer.records.whatif import WhatIf


def render(result: WhatIf) -> bytes:
    """UTF-8 CSV with a header; a missing value is an empty cell."""
    return encoded(table(result))
