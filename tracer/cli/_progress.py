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
    """A callback (done, total, what) that draws a bar once a second has gone by.

    There is a bar for each `what`; a total of 0 is one that nobody knows.
    """
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
    latest: dict[str, tuple[int, int]] = {}
    due = time.monotonic() + _PATIENCE_S

    def update(done: int, total: int, what: str) -> None:
        nonlocal due
        latest[what] = done, total
        if time.monotonic() < due:
            return
        for name, (made, of) in latest.items():
            seen = name == what or not 0 < of <= made  # what is done with goes away
            if name not in tasks and seen:
                tasks[name] = bar.add_task(name, total=of or None)
            if name in tasks:
                bar.update(tasks[name], completed=made, total=of or None, visible=seen)
        bar.start()
        bar.refresh()
        due = time.monotonic() + _REDRAW_S

    try:
        yield update
    finally:
        if tasks:
            bar.stop()
