"""A progress bar on stderr, for work that takes longer than a second, on a terminal only."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

_PATIENCE_S = 1.0
_REDRAW_S = 0.2
"""Drawing takes time that the work between two reports would notice."""


@contextlib.contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """A callback (done, total, what) that draws a bar once a second has gone by."""
    if not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    # Nothing redraws in the background: a refresh thread would run beside what is measured.
    bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
    tasks: dict[str, TaskID] = {}
    due = time.monotonic() + _PATIENCE_S

    def update(done: int, total: int, what: str) -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total)
            bar.start()
        bar.update(tasks[what], completed=done, total=total)
        bar.refresh()
        due = time.monotonic() + _REDRAW_S

    try:
        yield update
    finally:
        if tasks:
            bar.stop()
