"""A page as static HTML: escaped, without script, as a notebook shows it."""

from collections.abc import Iterator
from html import escape

from tracer.analyzers.options import DEFAULT_TOP, ViewOptions
from tracer.analyzers.views.page import Page, Table
from tracer.analyzers.views.text import plural
from tracer.text import line


def html(page: Page, options: ViewOptions) -> str:
    """The tables and notes of `page`; long tables have 10 rows unless `options.top` is set."""
    top = DEFAULT_TOP if options.top is None else options.top
    parts = [part for table in page.tables for part in _table(table, top)]
    parts += [_paragraph(f"note: {note}") for note in page.warnings]
    return "".join((*parts, _paragraph(page.foot) if page.foot else ""))


def _table(table: Table, top: int) -> Iterator[str]:
    if table.title:
        yield f"<p><b>{_text(table.title)}</b></p>"
    yield from map(_paragraph, table.head)
    columns, rows = table.cells(top, on_page=True)
    # An attribute rather than a style: the policy of a report forbids styles outside its sheet.
    aligned = ["" if c.is_name else ' align="right"' for c in columns]
    pairs = zip(columns, aligned, strict=True)
    heads = "".join(f"<th{side}>{_text(c.header)}</th>" for c, side in pairs)
    yield f"<table><tr>{heads}</tr>"
    for row in rows:
        cells = zip(row, aligned, strict=True)
        yield f"<tr>{''.join(f'<td{side}>{_text(text)}</td>' for text, side in cells)}</tr>"
    yield "</table>"
    if len(rows) < len(table.rows):
        yield _paragraph(f"… {plural(len(table.rows) - len(rows), 'more row')}")
    yield from map(_paragraph, (*table.lines, *table.advice))


def _paragraph(text: str) -> str:
    return f"<p>{_text(text)}</p>"


def _text(text: str) -> str:
    return escape(line(text))
