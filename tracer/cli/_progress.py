"""Progress bars on stderr, on a terminal only, for work of more than a second."""

import contextlib
import sys
import time
from collections.abc import Iterator

from tracer.cli._messages import tell
from tracer.containment import activity
from tracer.containment.activity import Progress, silent
from tracer.text import printable

_DELAY_S = 1.0
"""Shorter work shows no bar."""

_REDRAW_S = 0.2
"""Shortest time between two drawings, so that drawing does not slow the work down."""


_ESTIMATE_S = 10.0
"""How long a task takes before one line tells, without a terminal, how long it will take."""


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


def estimating(report: Progress) -> Progress:
    """Returns `report`, which also tells in one line for each task when a long task will end.

    On a terminal, where a bar tells it, returns `report` itself.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        return report
    began, told = time.monotonic(), set[str]()
    task_now = ""

    def update(done: int, total: int, task: str) -> None:
        nonlocal began, task_now
        report(done, total, task)
        now = time.monotonic()
        if task != task_now:
            began, task_now = (now if task_now else began), task
        if task not in told and done > 1 and now - began > _ESTIMATE_S:
            told.add(task)
            seconds = now - began
            if total:
                left = seconds / done * (total - done)
                tell(f"{task}: {done:,} of {total:,} in {seconds:.0f} s, about {left:.0f} s left")
            else:
                tell(f"{task}: {done:,} steps in {seconds:.0f} s; their number is not known")

    return update
