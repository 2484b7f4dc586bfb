"""`.md`: the page of a result for a README or an issue."""

from collections.abc import Iterator

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.page import Page, Table
from tracer.analyzers.views.text import cell


def render(page: Page, options: ViewOptions) -> bytes:
    """GitHub-flavoured Markdown, UTF-8, with all notes; empty columns are left out."""
    lines = [f"- note: {cell(note)}" for note in page.leading]
    lines += [""] if lines else []
    lines += [line for table in page.tables for line in _table(table, options.top)]
    lines += [f"- note: {cell(note)}" for note in page.remarks]
    lines += [f"- {cell(page.foot)}"] if page.foot else []
    return ("\n".join(lines) + "\n").encode()


def _table(table: Table, top: int | None) -> Iterator[str]:
    if table.title:
        yield from (f"### {cell(table.title)}", "")
    if table.head:
        yield from (*(f"- {cell(line)}" for line in table.head), "")
    columns, rows = table.cells(top, on_page=True)
    if columns:
        yield "| " + " | ".join(cell(column.header) for column in columns) + " |"
        yield "|" + "|".join("---" if c.is_name else "---:" for c in columns) + "|"
        yield from ("| " + " | ".join(cell(text.strip()) for text in row) + " |" for row in rows)
        yield ""
    below = (*table.lines, *table.advice)
    if below:
        yield from (*(f"- {cell(line)}" for line in below), "")


FORMATS = (Format("md", "page", render, in_full=True),)
