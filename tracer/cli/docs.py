"""`tracer docs`: read the documentation that is installed with tracer."""

import re
import sys
from pathlib import Path

import cloup

from tracer.cli._command import Command
from tracer.cli._output import write_stdout
from tracer.errors import UsageError
from tracer.text import suggest

FOLDER = Path(__file__).parents[1] / "docs"
_DOCSTRINGS = re.compile(r"^::: (\S+)\n(?: .*\n)*", re.MULTILINE)
"""What a page of Python's documentation has in the place of docstrings."""


@cloup.command(cls=Command)
@cloup.argument("page", required=False)
def command(page: str | None) -> None:
    """Read a page of the documentation, or list the pages.

    \b
    Examples:
      tracer docs
      tracer docs energy
      tracer docs energy > energy.md
    """
    pages = {
        file.stem: _DOCSTRINGS.sub(r"In Python, `help(\1)` shows them.\n", file.read_text("utf-8"))
        for file in sorted(FOLDER.glob("*.md"))
    }
    if page is None:
        titles = {name: re.search(r"^# (.*)", each, re.MULTILINE) for name, each in pages.items()}
        text = "".join(f"{name:20} {title[1] if title else ''}\n" for name, title in titles.items())
    elif page.removesuffix(".md") in pages:
        text = pages[page.removesuffix(".md")]
    else:
        hint = f"{suggest(page, list(pages))}'tracer docs' lists the pages."
        raise UsageError(f"there is no page '{page}'", hint)
    if page is None or not sys.stdout.isatty():
        write_stdout(text.encode())
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text, hyperlinks=False))
