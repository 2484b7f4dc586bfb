"""Says what this process does, on a page of memory that its supervisor reads when it has died.

Without a supervisor there is no page, and nothing is written. Long work reports how far it has come
by a `Progress`.
"""

import contextlib
import mmap
import os
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tracer.containment.memory import out_of_memory
from tracer.text import printable

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the completed steps, the total steps, and the current work."""
PATIENCE_S = 600.0
"""Seconds that native code may take for a step, where the time of the process is not limited."""
_DELAY_S, _REDRAW_S = 1.0, 0.2
"""Shorter work shows no bar; shortest time between two drawings of one."""
_HEAD = struct.Struct("<dddqqqqq")
"""Three times (seconds of the monotonic clock, 0 for none), steps done, steps in total, one more
than the exit code (0 while Python code runs), whether a model runs, and whether there are results
to keep."""
_BEAT, _STEPS, _ENDED, _RUNS, _KEEPS = 16, 24, 40, 48, 56
_SIZE, _FILES = 4096, 3584
"""Bytes of the page, and where in it are the names of files that the process has kept."""
_FIELD = 400
"""Most characters of a part of an activity: names in a model may be of any length."""


@dataclass(frozen=True, slots=True)
class Activity:
    """`where` names the model or file, `action` is a clause, `remedy` says what else to try.

    With `patient`, it may take any time; otherwise a step of it takes at most PATIENCE_S. With
    `runs_model`, a `search` can tell the node in which it crashes.
    """

    where: str = ""
    action: str = ""
    remedy: str = ""
    task: str = ""
    patient: bool = True
    runs_model: bool = False

    def __str__(self) -> str:
        """Returns the clause with the task of the progress bar, or whichever there is."""
        if not self.action:
            return self.task
        return f"{self.action} ({self.task})" if self.task else self.action


class Page:
    """Memory that a process and its supervisor share.

    `alarm` is a file descriptor on which the process tells the supervisor of a new deadline.
    """

    def __init__(self, memory: mmap.mmap, alarm: int) -> None:
        self._memory = memory
        self._alarm = alarm

    @classmethod
    def anonymous(cls, alarm: int) -> "Page":
        """Returns a new page, for this process and those that it forks."""
        return cls(mmap.mmap(-1, _SIZE), alarm)

    @classmethod
    def of_file(cls, file: int, alarm: int) -> "Page":
        """Returns the page in an open file, which another process has open as well."""
        os.truncate(file, _SIZE)
        return cls(mmap.mmap(file, _SIZE), alarm)

    @property
    def times(self) -> tuple[float, float]:
        """When the time is up, and until when the process, which was told to end, tidies up."""
        deadline, tidying, *_ = _HEAD.unpack_from(self._memory)
        return deadline, tidying

    @property
    def stalls_at(self) -> float | None:
        """When patience ends with a step that does not; None where any time is allowed."""
        deadline, tidying, beat, *_ = _HEAD.unpack_from(self._memory)
        return beat + PATIENCE_S if beat and not deadline and not tidying else None

    @property
    def code(self) -> int | None:
        """The exit code with which the Python code of the process ended; None while it runs."""
        code = _HEAD.unpack_from(self._memory)[-3] - 1
        return None if code < 0 else int(code)

    @property
    def runs_model(self) -> bool:
        """Whether the process does what a `search` can do again in parts."""
        return bool(_HEAD.unpack_from(self._memory)[-2])

    @property
    def keeps(self) -> bool:
        """Whether the process has results that it keeps if it is asked to end."""
        return bool(_HEAD.unpack_from(self._memory)[-1])

    def keep(self, something: bool) -> None:
        """Stores whether there are results to keep."""
        struct.pack_into("<q", self._memory, _KEEPS, something)

    def end(self, code: int) -> None:
        """Tells that the Python code of the process has ended, and with which exit code."""
        struct.pack_into("<q", self._memory, _ENDED, 1 + code)

    def set_times(self, deadline: float, tidying: float) -> None:
        """Stores the times and wakes the supervisor."""
        struct.pack_into("<dd", self._memory, 0, deadline, tidying)
        os.write(self._alarm, b"\0")

    def step(self, done: int, total: int) -> None:
        """Stores how far the work has come."""
        struct.pack_into("<qq", self._memory, _STEPS, done, total)

    def beat(self, patient: bool) -> None:
        """Stores that a step begins now, or that the next one may take any time."""
        struct.pack_into("<d", self._memory, _BEAT, 0.0 if patient else time.monotonic())

    def write(self, activity: Activity) -> None:
        """Stores the activity, with long names cut, and that it begins now."""
        self.beat(activity.patient)
        struct.pack_into("<q", self._memory, _RUNS, activity.runs_model)
        parts = (activity.where, activity.action, activity.remedy, activity.task)
        text = "\0".join(part[:_FIELD].replace("\0", " ") for part in parts) + "\0\0"
        encoded = text.encode("utf-8", "replace")[: _FILES - _HEAD.size]
        self._memory[_HEAD.size : _HEAD.size + len(encoded)] = encoded

    @property
    def files(self) -> list[str]:
        """The files that the process has kept, and that stand if it dies."""
        text = self._memory[_FILES:].decode("utf-8", "replace")
        return list(filter(None, text.rstrip("\0").split("\0")))

    def stand(self, file: str) -> None:
        """Stores that a file was kept; one for which there is no room is left out."""
        encoded = "\0".join(dict.fromkeys([*self.files, file])).encode("utf-8", "replace")
        if len(encoded) <= _SIZE - _FILES:
            self._memory[_FILES : _FILES + len(encoded)] = encoded

    def read(self) -> Activity:
        """Returns the activity as it was written last, with the steps done of its task."""
        *_, done, total, _, _, _ = _HEAD.unpack_from(self._memory)
        text = self._memory[_HEAD.size : _FILES].decode("utf-8", "replace")
        where, action, remedy, task, *_ = (*text.split("\0")[:4], "", "", "", "")
        if task and total > 0:
            task = f"{task}, {done:,} of {total:,}"
        return Activity(where, action, remedy, task)


_page: Page | None = None
_now = Activity()


def supervised_by(page: Page) -> None:
    """Makes `page` the page of this process, which runs under a supervisor from now on."""
    global _page
    _page = page


def page() -> Page | None:
    """Returns the page of this process; None where it has no supervisor."""
    return _page


def now() -> Activity:
    """Returns what this process does, with the steps done where it has a supervisor."""
    return _now if _page is None else _page.read()


def about(where: str) -> None:
    """Says which model or file the whole command is about, for what happens outside `doing`."""
    _tell(Activity(where))


@contextlib.contextmanager
def doing(
    where: str, action: str, remedy: str = "", patient: bool = False, runs_model: bool = False
) -> Iterator[None]:
    """Says what happens inside the `with`, in the past tense: `onnxruntime ran the model`.

    A supervisor ends what takes longer than PATIENCE_S without a `step`, unless it is `patient`.
    It takes some µs, so it does not belong into a measured time. Raises LimitError where memory
    runs out.
    """
    before = _now
    _tell(Activity(where, action, remedy, "", patient, runs_model))
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(f"{where}: not enough memory while {action}") from error
    finally:
        _tell(before)


def end(code: int) -> None:
    """Says that this process has told its error and ends with `code`, whatever befalls its end."""
    if _page is not None:
        _page.end(code)


def stand(file: str) -> None:
    """Says that a file with results was written, and stands if this process dies."""
    if _page is not None:
        _page.stand(file)


def step() -> None:
    """Says that a step of what this process does has ended, such as a run."""
    if _page is not None:
        _page.beat(_now.patient)


def silent(done: int, total: int, what: str) -> None:
    """Reports nothing."""


@contextlib.contextmanager
def progress_bar(progress: Progress | bool | None) -> Iterator[Progress | bool]:
    """Yields what to report to: `progress`, or a function that draws a bar on stderr, or False.

    A bar is drawn for work of more than a second: always for True, and for None on a terminal and
    in a notebook. A process with a supervisor draws none: the supervisor does.
    """
    if callable(progress):
        yield progress
        return
    if _page is not None or not (_is_watched() if progress is None else progress):
        yield False
        return
    due = time.monotonic() + _DELAY_S
    bar: Any = None
    shown: tuple[str, int] | None = None

    def update(done: int, total: int, task: str) -> None:
        nonlocal bar, shown
        if bar is None:
            if total and (time.monotonic() < due or done >= total):
                return  # work without steps reports nothing later
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # in a notebook without widgets, text is a bar too
                from tqdm.auto import tqdm
            bar = tqdm(total=total, leave=False, miniters=1, mininterval=_REDRAW_S)
        if (task, total) != shown:
            bar.set_description(printable(task), refresh=False)
            bar.reset(total)
            shown = task, total
        bar.update(done - bar.n)

    try:
        yield update
    finally:
        if bar is not None:
            bar.close()


def _is_watched() -> bool:
    """Returns whether somebody sees stderr: a terminal, or a notebook, which is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    in_notebook = "IPKernelApp" in getattr(shell, "config", ())
    return in_notebook or (sys.stderr is not None and sys.stderr.isatty())


def noting(progress: Progress) -> Progress:
    """Returns `progress`, with the steps noted on the page first."""
    if _page is None:
        return progress
    shared, latest = _page, ""

    def update(done: int, total: int, task: str) -> None:
        nonlocal latest
        shared.step(done, total)
        shared.beat(_now.patient)
        if task != latest:
            latest = task
            _tell(replace(_now, task=task))
        progress(done, total, task)

    return update


def _tell(activity: Activity) -> None:
    global _now
    _now = activity
    if _page is not None:
        _page.write(activity)
