"""`.md`: the page for a README or an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.compare.views._pages import page
from analyzers.views.md import cell

if TYPE_CHECKING:
    from analyzers.compare.views import Result


def render(result: Result, top: int | None) -> bytes:
    """GitHub-flavoured Markdown, UTF-8; columns nobody filled are left out."""
    shown = page(result)
    lines: list[str] = []
    for table in shown.tables:
        columns = table.filled
        rows = table.rows.head(top) if table.is_long and top else table.rows
        lines += [f"### {cell(table.title)}", ""]
        lines.append("| " + " | ".join(cell(column.header) for column in columns) + " |")
        lines.append("|" + "|".join("---" if c.is_name else "---:" for c in columns) + "|")
        for _, row in rows.iterrows():
            lines.append("| " + " | ".join(cell(c.text(row).strip()) for c in columns) + " |")
        lines += ["", *(f"- {cell(line)}" for line in table.lines), ""]
    lines += [f"- note: {cell(note)}" for note in shown.notes]
    lines.append(f"- {cell(shown.foot)}")
    return ("\n".join(lines) + "\n").encode()
