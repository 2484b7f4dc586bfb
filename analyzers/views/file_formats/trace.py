"""`.trace`: everything that was measured, as an SQLite file that `tracer report` renders again."""

from analyzers.options import ViewOptions
from analyzers.views.format import Format


def render(stored: bytes, options: ViewOptions) -> bytes:
    """The file as `tracer.storage` serialises it."""
    return stored


FORMATS = (Format("trace", "stored", render, is_binary=True),)
