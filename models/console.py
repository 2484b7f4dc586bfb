"""What the commands of this folder share: an end like `tracer`'s, a progress bar, arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from models.training import loop
from tracer.errors import UsageError


@contextmanager
def progress_bar() -> Iterator[loop.Progress]:
    """A bar on stderr while the block runs, gone afterwards; nothing where it is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield show


def arguments(pairs: tuple[str, ...]) -> dict[str, object]:
    """`depth=32`, `residual=always` as arguments of a class: Python literals, else strings.

    Raises UsageError for what is no pair.
    """
    found: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--arg {pair} is not KEY=VALUE", "As in --arg depth=32.")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found
