"""`.parquet`: a row for each width of each variant, with its types (needs the `parquet` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.views.parquet import encoded
from analyzers.whatif.views._widths import table

if TYPE_CHECKING:
    from tracer.whatif.result import WhatIf


def render(result: WhatIf) -> bytes:
    """Raises UsageError where pyarrow is not installed."""
    return encoded(table(result))
