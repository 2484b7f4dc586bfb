"""`.parquet`: a row for each width of each variant, with its types (needs the `parquet` extra)."""

from __future__ import annotations

from analyzers.views.parquet import encoded
from analyzers.whatif.views._widths import table
from tracer.records.whatif import WhatIf


def render(result: WhatIf) -> bytes:
    """Raises UsageError where pyarrow is not installed."""
    return encoded(table(result))
