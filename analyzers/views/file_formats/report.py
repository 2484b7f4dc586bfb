"""`.html`: a report of a result in one file, which needs nothing else ('tracer docs report')."""

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.report import Content, assembled, redacted


def render(content: Content, options: ViewOptions) -> bytes:
    """UTF-8 HTML with its styles, scripts and data; the same content gives the same bytes."""
    return assembled(redacted(content) if options.redact else content)


FORMATS = (Format("html", "report", render),)
