"""Runs a command in a child process, ends it if it does not end itself, and says how it died.

The child is forked before anything heavy is imported: it has the terminal, the arguments and the
import path of this process, and costs some ms. It shares a page with its supervisor.
"""

import contextlib
import faulthandler
import gc
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tracer import errors
from tracer.containment import activity, memory, signals, watch
from tracer.support import temporary
from tracer.text import message

IN_PROCESS = "TRACER_IN_PROCESS"
"""Environment variable; where it is set, nothing runs in a child, as debuggers need it."""

_COLLECTIONS = (300_000, 10, 50)
"""Thresholds of garbage collection: none of the 200,000 objects that a command imports is garbage,
nor any of a model with 100,000 nodes, where Python's defaults would take a fifth of the time."""

_LEAST_FILES = 32
"""Files that a command has open at a time, at most; Python opens more while it imports."""

_DYING_S = 2.0
"""Longest time that processes which are killed take to end."""

_FRAME = re.compile(r'File "(?:.*/)?([^/"]+/[^/"]+)", line (\d+) in (\S+)')


def in_process() -> bool:
    """Returns whether calls run in this process: it is a child, or debugged, or cannot fork."""
    starts = hasattr(os, "fork") and bool(sys.executable)
    return not starts or activity.page() is not None or bool(os.environ.get(IN_PROCESS))


def supervised(command: Callable[[], int], name: str) -> int:
    """Returns the exit code of `command`, which runs in a child process; both processes return.

    Call it first thing in a program. Messages on stderr begin with `name`.
    """
    occupy_streams()
    if memory.open_files() < _LEAST_FILES:
        _tell(
            f"{name}: error: a process may have {memory.open_files()} files open here, and needs "
            f"{_LEAST_FILES}. Raise the limit: ulimit -n 1024."
        )
        return errors.InputError.exit_code
    if in_process():
        return command()
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    page = activity.Page.anonymous(writing)
    frames: BinaryIO | None = None
    if hasattr(os, "memfd_create"):  # a file in memory
        frames = os.fdopen(os.memfd_create("frames"), "w+b", buffering=0)
    if temporary.STANDARD_INPUT in sys.argv:
        temporary.keep_standard_input()
    supervisor = os.getpid()
    with _handling(writing):
        child = os.fork()
        if child == 0:
            become_child(page, frames, supervisor)
        else:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {*watch.ENDING, signal.SIGCHLD})
            temporary.sweep()
            ended = watch.wait(child, page, reading, frames)
            last = page.read()
            seconds = watch.search_seconds(page.times[0])
            usual = (0, *watch.ENDING, signal.SIGKILL, signal.SIGQUIT, signal.SIGPIPE)
            has_crashed = ended.signal not in usual and not ended.overdue
            if seconds and has_crashed and page.runs_model and not page.code:
                last = _search_for_node(command, writing, reading, seconds) or last
            temporary.sweep()
            return _report_death(ended, page, last, name)
    code = 1  # Python's for an exception
    try:
        code = _as_child(command, name)
        return code
    finally:
        page.end(code)
        gc.freeze()  # what is left goes with the process, which need not look through it first


def occupy_streams() -> list[int]:
    """Opens the null device in place of standard streams that the user closed; returns which.

    A file would get their number, and with it what native code prints.
    """
    opened = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened.append(os.open(os.devnull, os.O_RDWR))  # gets the lowest free number
    return opened


@contextlib.contextmanager
def _handling(wakeup: int) -> Iterator[None]:
    """Makes signals wake the supervisor; they are blocked until its process unblocks them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*watch.ENDING, signal.SIGCHLD})
    numbers = [n for n in watch.ENDING if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in (*numbers, signal.SIGCHLD)}
    for number in before:
        signal.signal(number, lambda number, frame: None)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)


def become_child(page: activity.Page, frames: BinaryIO | None, supervisor: int) -> None:
    """Ties this process to `supervisor`, whose number it is, and limits it."""
    watch.die_with(supervisor)
    watch.silence_terminate()
    activity.supervised_by(page)
    memory.limit_to_share()
    gc.set_threshold(*_COLLECTIONS)
    if frames is not None:
        faulthandler.enable(frames)


def _as_child(command: Callable[[], int], name: str) -> int:
    try:
        with signals.raising():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {*watch.ENDING, signal.SIGCHLD})
            return command()
    except (KeyboardInterrupt, signals.Terminated) as error:  # while the command was imported
        number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM
        return _asked_to_end(number, name)
    except Exception as error:
        if not errors.is_lack_of_memory(error) or "--debug" in sys.argv:
            raise
        _tell(f"{name}: error: {memory.out_of_memory('not enough memory to start the command')}")
        return errors.LimitError.exit_code


def _search_for_node(
    command: Callable[[], int], alarm: int, reading: int, seconds: float
) -> activity.Activity | None:
    """Returns what a second run of `command` tells of a crash; None where it finds nothing."""
    page, supervisor = activity.Page.anonymous(alarm), os.getpid()
    page.set_times(time.monotonic() + seconds, 0.0)
    watch.adopt_orphans()
    child = os.fork()
    if child == 0:
        try:
            signal.set_wakeup_fd(-1)
            for number in watch.ENDING:
                signal.signal(number, signal.SIG_DFL)
            become_child(page, None, supervisor)
            watch.begin_search()
            command()
        finally:
            os._exit(0)  # what follows in the program is not for this process
    ended = watch.wait(child, page, reading, None)
    watch.await_children(_DYING_S)  # what it tried in further processes died with it
    return page.read() if (ended.code, ended.signal) == (watch.FOUND, 0) else None


def _report_death(
    ended: watch.Ended, page: activity.Page, last: activity.Activity, name: str
) -> int:
    """Returns the exit code of a child, and tells a death that the child could not tell.

    `last` is what it did.
    """
    if not ended.signal and page.code is not None:
        return ended.code
    if page.code:  # it had told an error, and only what it left was in the way
        return page.code
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K\x1b[?25h")  # a progress bar hides the cursor
    for file in page.files:
        _tell(f"wrote {file}")
    if ended.asked:
        return _asked_to_end(ended.asked, name)
    if ended.signal in (*watch.ENDING, signal.SIGQUIT, signal.SIGPIPE):
        return _asked_to_end(ended.signal, name)
    if ended.overdue:
        error: errors.LimitError | errors.CrashError = signals.time_is_up(last, bool(page.times[0]))
    else:
        error = crash(-ended.signal or ended.code, last, ended.frames)
    _tell(f"{name}: error: {error}")
    if "--debug" in sys.argv:
        for line in ended.frames.splitlines():
            _tell(line)
    return error.exit_code


def crash(code: int, last: activity.Activity, frames: str) -> errors.CrashError:
    """Returns the error that says how a process died, and while it did what.

    `code` is its exit code, or less than 0 for a signal. `frames` is the traceback that it wrote.
    """
    how = f"exit code {code}" if code >= 0 else _signal_name(-code)
    frame, doing, remedy = _FRAME.search(thread_that_died(frames)), str(last), last.remedy
    if not doing and frame is not None:
        doing = f"{frame[3]} ran ({frame[1]}:{frame[2]})"
    event = f"the runtime crashed ({how})" if code < 0 else f"the process ended itself ({how})"
    if code == -signal.SIGKILL:
        event = f"the process was killed ({how})"
        remedy = "If the system ran out of memory, use a smaller batch."
    where = f"{last.where}: " if last.where else ""
    what = f"{where}{event}{' while ' if doing else ''}{doing}"
    return errors.CrashError(what, remedy or f"Set {IN_PROCESS}=1 to run it in a debugger.")


def thread_that_died(frames: str) -> str:
    """Returns the part of a fault handler's traceback about the thread that had the fault."""
    return frames.partition("Current thread")[2] or frames


def _signal_name(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")


def _asked_to_end(number: int, name: str) -> int:
    words: dict[int, str] = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
    _tell(f"{name}: {words.get(number, _signal_name(number))}")
    return 128 + number  # as shells do


def _tell(text: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # nobody is left to read it
            sys.stderr.write(f"{message(text)}\n")
            sys.stderr.flush()
