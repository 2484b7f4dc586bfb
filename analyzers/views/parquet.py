"""`.parquet`: the node table with its types (needs the `parquet` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.errors import UsageError

if TYPE_CHECKING:
    from analyzers.views import ViewOptions
    from tracer.trace import Trace


def render(trace: Trace, options: ViewOptions) -> bytes:
    """Raises UsageError where pyarrow is not installed."""
    import io

    from analyzers.views._tables import table

    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            "parquet needs pyarrow", "Install it with: pip install 'tracer-onnx[parquet]'."
        ) from error
    buffer = io.BytesIO()
    table(trace, options).to_parquet(buffer, index=False)
    return buffer.getvalue()
