"""Watches a child process to its end: its time, and the signals that ask it to end."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from typing import BinaryIO

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
    """Waits for the end of the child; passes signals on, and kills it when its time is up."""
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
        for number in _arrived(reading):
            if asked and time.monotonic() - asked_at > _TWICE_S:
                os.kill(child, signal.SIGKILL)
            elif not asked:
                asked, asked_at = number, time.monotonic()
                os.kill(child, number)
    code, died = (0, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), 0)
    deadline = page.times[0]
    overdue |= bool(died and deadline and time.monotonic() >= deadline)  # it died of being ended
    return Ended(code, died, asked, overdue, _content(frames))


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
        if tidying:
            ends = [tidying]
        look = now + activity.PATIENCE_S / 10  # a new step tells nobody when it begins
        return min([look, *ends]) - now


def _arrived(descriptor: int) -> list[int]:
    """Returns the signals that came through the pipe and ask to end."""
    try:
        return [number for number in os.read(descriptor, 64) if number in ENDING]
    except BlockingIOError:
        return []


def _content(file: BinaryIO | None) -> str:
    if file is None:
        return ""
    file.seek(0)
    return file.read().decode("utf-8", "replace")
