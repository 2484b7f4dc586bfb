"""Progress bars on stderr, on a terminal only, for work of more than a second."""

import contextlib
import sys
import time
from collections.abc import Iterator

from tracer.containment import activity
from tracer.support.progress import Progress, silent
from tracer.text import printable

_DELAY_S = 1.0
"""Shorter work shows no bar."""

_REDRAW_S = 0.2
"""Shortest time between two drawings, so that drawing does not slow the work down."""


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Yields a callback that draws one bar for each task; a total of 0 means unknown."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield activity.noting(silent)
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    # No refresh thread: it would run beside the code that is being measured.
    bar = bars.Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
    tasks: dict[str, bars.TaskID] = {}
    latest: dict[str, tuple[int, int]] = {}
    due = time.monotonic() + _DELAY_S

    def update(done: int, total: int, task: str) -> None:
        nonlocal due
        latest[task] = done, total
        if time.monotonic() < due and total:  # work without steps reports nothing later
            return
        for name, (steps, all_steps) in latest.items():
            is_visible = name == task or not 0 < all_steps <= steps  # finished tasks disappear
            if name not in tasks and is_visible:
                tasks[name] = bar.add_task(printable(name), total=all_steps or None)
            if name in tasks:
                bar.update(
                    tasks[name], completed=steps, total=all_steps or None, visible=is_visible
                )
        bar.start()
        bar.refresh()
        due = time.monotonic() + _REDRAW_S

    try:
        yield activity.noting(update)
    finally:
        if tasks:
            bar.stop()
