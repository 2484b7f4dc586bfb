"""Ties a child process to its parent, and watches it to its end: its time, and signals.

After a crash a second run, the search, tells the node that crashes and does nothing else. It goes
the way of the first run up to the first model that a runtime runs. There it tries parts of the
model, each in a process of its own.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from tracer.containment import activity

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if os.name == "posix" else ()
"""Signals that ask a command to end."""
GRACE_S = 2.0
"""Seconds after the deadline in which the child may end by itself."""
ASKED_GRACE_S, KEEPING_GRACE_S = 1.2, 8.0
"""The same after a signal, and where the child has results to keep: a busy machine may take seconds
to let it notice, and they would be lost. Who cannot wait sends a second signal."""
_TWICE_S = 0.3
"""Signals closer together are one: `timeout` and terminals send them to the whole group too."""
_PAUSE_S = 0.005
"""Seconds between two looks for children that are left."""
FOUND = 77
"""Exit code of a search that tells the cause on its page."""
MOST_SEARCH_S = 20.0
"""Seconds that a search may take: nobody waits long for the name of a node."""

_STDERR = threading.Lock()
"""Held while stderr is another file: who came meanwhile would take that for the one to restore."""
_DEATH_OF_PARENT, _ADOPTION = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER of Linux
_SET_TERMINATE = "_ZSt13set_terminatePFvvE"  # std::set_terminate(void (*)())


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: its exit code or signal, and the signal that asked it to end (0: none).

    `frames` is the traceback that it wrote when it died.
    """

    code: int
    signal: int
    asked: int
    overdue: bool
    frames: str


def wait(child: int, page: activity.Page, reading: int, frames: BinaryIO | None) -> Ended:
    """Waits for the end of the child; passes signals on, and kills it when its time is up.

    Closes `frames`, to which the child writes a traceback when it dies.
    """
    asked, asked_at, overdue = 0, 0.0, False
    alarm = Alarm(child)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        left = alarm.seconds_left(page, asked_at)
        if left <= 0:
            overdue = True
            os.kill(child, signal.SIGKILL)
        select.select([reading], [], [], None if overdue else left)
        arrived = b""
        with contextlib.suppress(BlockingIOError):
            arrived = os.read(reading, 64)
        for number in filter(ENDING.__contains__, arrived):
            if asked and time.monotonic() - asked_at > _TWICE_S:
                os.kill(child, signal.SIGKILL)
            elif not asked:
                asked, asked_at = number, time.monotonic()
                os.kill(child, number)
    code, died = (0, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), 0)
    deadline = page.times[0]
    overdue |= bool(died and deadline and time.monotonic() >= deadline)  # it died of being ended
    traceback = b""
    if frames is not None:
        with frames:
            frames.seek(0)
            traceback = frames.read()
    return Ended(code, died, asked, overdue, traceback.decode("utf-8", "replace"))


class Alarm:
    """Watches the time of a child, and wakes it when patience ends with what it does."""

    def __init__(self, child: int) -> None:
        self._child = child
        self._rang_at = 0.0

    def seconds_left(self, page: activity.Page, asked_at: float = 0.0) -> float:
        """Returns after how many seconds to look again; 0 or less if the child is overdue.

        `asked_at` is when it was asked to end, 0 for never. Native code may keep it from noticing.
        """
        stalls_at, now = page.stalls_at, time.monotonic()
        if stalls_at is not None and stalls_at <= now and not self._rang_at:
            self._rang_at = now
            os.kill(self._child, signal.SIGALRM)
        deadline, tidying = page.times
        ends = [moment + GRACE_S for moment in (deadline, self._rang_at) if moment]
        if asked_at:
            ends.append(asked_at + (KEEPING_GRACE_S if page.keeps else ASKED_GRACE_S))
        if tidying and page.keeps:
            ends = [tidying]
        look = now + activity.PATIENCE_S / 10  # a new step tells nobody when it begins
        return min([look, *ends]) - now


def die_with(parent: int) -> None:
    """Makes the system kill this process when `parent`, the number of its parent, dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it died before
            os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this process the parent of those whose parents, its descendants, die."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPTION, 1)


def await_children(seconds: float) -> None:
    """Returns when no child is left, or after so many seconds.

    A process that is killed takes a while to give back its memory, and holds its files until then.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            number, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not number:
            time.sleep(_PAUSE_S)


def silence_terminate() -> None:
    """Lets C++ abort without a message on an exception that nothing catches.

    The supervisor reports it. libstdc++ would print the name of the exception's type as it finds it
    in memory, which may be damaged by then: any bytes, also those that control a terminal.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C++ library
            setter = getattr(ctypes.CDLL("libstdc++.so.6"), _SET_TERMINATE)
            setter(ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p))


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """Drops what native code prints to stderr; its exception says it, safe to show.

    Libraries within onnxruntime log what a model holds as it is, with what controls a terminal, and
    read no setting of a log level.
    """
    with _STDERR:
        shown, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nothing, 2)
            yield
        finally:
            os.dup2(shown, 2)
            os.close(shown)
            os.close(nothing)


def search_seconds(deadline: float) -> float:
    """Returns for how many seconds to search before a time limit, of the monotonic clock, or 0."""
    left = deadline - time.monotonic() if deadline else MOST_SEARCH_S
    return min(MOST_SEARCH_S, max(0.0, left))


_is_search = False


def begin_search() -> None:
    """Makes this process a search: it writes nothing, neither results nor messages."""
    global _is_search
    _is_search = True
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)


def is_search() -> bool:
    """Returns whether this process is a search."""
    return _is_search


def crashes(trial: Callable[[], object]) -> bool:
    """Returns whether `trial` dies of a signal, in a process of its own."""
    global _is_search
    us = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            die_with(us)
            _is_search = False
            trial()
        finally:
            os._exit(0)  # an exception is no crash
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def tell_cause(where: str, action: str, remedy: str) -> NoReturn:
    """Ends this process, with what the first one did when it crashed."""
    page = activity.page()
    assert page is not None
    page.write(activity.Activity(where, action, remedy))
    os._exit(FOUND)
