"""`.md`: the page of a result for a README or an issue."""

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.page import Page
from tracer.analyzers.views.text import cell


def render(page: Page, options: ViewOptions) -> bytes:
    """GitHub-flavoured Markdown, UTF-8, with all notes; empty columns are left out."""
    lines = [f"- note: {cell(note)}" for note in page.leading]
    lines += [""] if lines else []
    for table in page.tables:
        lines += [f"### {cell(table.title)}", ""] if table.title else []
        lines += [*(f"- {cell(line)}" for line in table.head), ""] if table.head else []
        columns, rows = table.cells(options.top, on_page=True)
        if columns:
            lines.append("| " + " | ".join(cell(column.header) for column in columns) + " |")
            lines.append("|" + "|".join("---" if c.is_name else "---:" for c in columns) + "|")
            lines += ["| " + " | ".join(cell(text.strip()) for text in row) + " |" for row in rows]
            lines.append("")
        below = (*table.lines, *table.advice)
        lines += [*(f"- {cell(line)}" for line in below), ""] if below else []
    lines += [f"- note: {cell(note)}" for note in page.remarks]
    lines += [f"- {cell(page.foot)}"] if page.foot else []
    return ("\n".join(lines) + "\n").encode()


FORMATS = (Format("md", "page", render, in_full=True),)
