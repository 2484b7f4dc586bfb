"""What a command says on stderr: lines, safe to show whatever names they hold, and progress bars.

Bars show on a terminal only, for work of more than a second. An internal error has a file.
"""

import contextlib
import platform
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from tracer.containment import activity
from tracer.containment.signals import ENDINGS
from tracer.errors import InputError, chain_of, refusing
from tracer.support import files
from tracer.text import LINE, message, printable

_DELAY_S = 1.0
"""Shorter work shows no bar."""
_REDRAW_S = 0.2
"""Shortest time between two drawings, so that drawing does not slow the work down."""
_ESTIMATE_S = 10.0
"""How long a task takes before one line tells, without a terminal, how long it will take."""
_MOST_FRAMES = 60
_KEPT = 20
"""Files of internal errors in the folder; older ones go."""


_voice = {"quiet": False, "verbose": False}
_began = time.monotonic()


def begin() -> None:
    """Begins a command, which says as much as commands do by default."""
    global _began
    _began = time.monotonic()
    _voice.update(quiet=False, verbose=False)


def set_voice(name: str) -> None:
    """Makes this command `quiet` or `verbose`."""
    _voice[name] = True


def is_quiet() -> bool:
    """Whether the command says nothing but its result and errors."""
    return _voice["quiet"]


def is_verbose() -> bool:
    """Whether the command says all there is."""
    return _voice["verbose"]


def tell_time(step: str) -> None:
    """Writes the seconds since the command began and what begins now, if the command is verbose."""
    if is_verbose():
        tell(f"{time.monotonic() - _began:7.2f} s  {step}")


def tell_error(text: str, error: BaseException) -> None:
    """Writes the line of an error, and its causes if the command is verbose.

    An interruption has none: what it was raised from is what it interrupted.
    """
    _write(text)
    if not is_verbose() or isinstance(error, (click.Abort, *ENDINGS)):
        return
    for cause in list(chain_of(error))[1:]:
        kind = f"{type(cause).__module__}.{type(cause).__qualname__}".removeprefix("builtins.")
        _write(f"  caused by {kind}: {cause}")


def tell(text: str) -> None:
    """Writes a line to stderr, unless the command is quiet."""
    if not is_quiet():
        _write(text)


def _write(text: str) -> None:
    """Writes a line to stderr, if anybody is left to read it."""
    with contextlib.suppress(OSError, ValueError):  # a closed pipe, or a closed stream
        click.echo(message(text), err=True)


def tell_written(path: Path, what: str = "") -> None:
    """Tells that a file was written; `what` says more of it."""
    tell(f"wrote {path}{what}")
    files.told_of(path)


def tell_standing() -> None:
    """Tells the files that stand, and are whole, although the command failed afterwards."""
    for path in files.untold():
        tell_written(path)


def reading(paths: Iterable[object]) -> contextlib.AbstractContextManager[None]:
    """Refuses files that pass all checks, and hold what no view can show."""
    names = ", ".join(map(str, paths))
    return refusing(
        lambda why: InputError(
            f"{names}: holds what cannot be shown ({why})",
            "If tracer wrote it as it is, please report this; --debug shows the traceback.",
        )
    )


@contextlib.contextmanager
def progress() -> Iterator[activity.Progress]:
    """Yields a callback that draws one bar for each task; a total of 0 means unknown."""
    if is_verbose():
        yield activity.noting(_telling_steps())
        return
    if is_quiet() or sys.stderr is None or not sys.stderr.isatty():
        yield activity.noting(activity.silent)
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn(),
               bars.MofNCompleteColumn(), bars.TimeRemainingColumn())  # fmt: skip
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


def _telling_steps() -> activity.Progress:
    told = set[str]()

    def update(done: int, total: int, task: str) -> None:
        if task not in told:
            told.add(task)
            tell_time(f"{task} ({total:,})" if total > 1 else task)

    return update


def estimating(report: activity.Progress) -> activity.Progress:
    """Returns `report`, which also tells when a long task will end.

    It does so again each time that the task has taken twice as long. On a terminal, where a bar
    tells it, returns `report` itself.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        return report
    began, tell_at = time.monotonic(), dict[str, float]()
    task_now = ""

    def update(done: int, total: int, task: str) -> None:
        nonlocal began, task_now
        report(done, total, task)
        now = time.monotonic()
        if task != task_now:
            began, task_now = (now if task_now else began), task
        seconds = now - began
        if done > 1 and seconds > tell_at.get(task, _ESTIMATE_S):
            tell_at[task] = 2 * seconds
            if total:
                left = seconds / done * (total - done)
                tell(f"{task}: {done:,} of {total:,} in {seconds:.0f} s, about {left:.0f} s left")
            else:
                tell(f"{task}: {done:,} steps in {seconds:.0f} s; their number is not known")

    return update


def write_incident(error: BaseException, command: Sequence[str]) -> Path | None:
    """Keeps what a report of an internal error needs: traceback, versions, command line.

    Returns the path of the file, in the user's cache folder or that for temporary files; None if
    neither can be written. It holds no values and no data, and names of a model only where the
    traceback's last line has them.
    """
    from tracer.records import environment

    text = "".join(traceback.format_exception(error, limit=-_MOST_FRAMES))
    lines = [
        f"command: {shlex.join(command)}",
        f"python: {sys.version}",
        f"system: {platform.platform()}, {environment.cpu_model()}",
        *(f"{name}: {version}" for name, version in environment.versions().items()),
        "",
        *text.rstrip("\n").split("\n"),
    ]
    content = "".join(f"{printable(line, LINE)}\n" for line in lines).encode()
    moment = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() // 1000 % 10**6:06}"
    for folder in (files.cache_folder() / "errors", Path(tempfile.gettempdir())):
        file = folder / f"internal-error-{moment}.txt"
        if files.store_in_cache(file, content):
            for older in sorted(folder.glob("internal-error-*.txt"))[:-_KEPT]:
                older.unlink(missing_ok=True)
            return file
    return None
