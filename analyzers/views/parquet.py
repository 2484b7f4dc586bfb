"""`.parquet`: the node table with its types (needs the `parquet` extra)."""

from __future__ import annotations

import io

import pandas as pd

from analyzers.views import ViewOptions
from analyzers.views._tables import table
from tracer.errors import UsageError
from tracer.records.trace import Trace


def render(trace: Trace, options: ViewOptions) -> bytes:
    """Raises UsageError where pyarrow is not installed."""
    return encoded(table(trace, options))


def encoded(shown: pd.DataFrame) -> bytes:
    """Any table as Parquet. Raises UsageError where pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            "parquet needs pyarrow", "Install it with: pip install 'tracer-onnx[parquet]'."
        ) from error
    buffer = io.BytesIO()
    shown.to_parquet(buffer, index=False)
    return buffer.getvalue()
