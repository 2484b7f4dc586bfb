"""Ties the life of a process to the life of its parent."""

import ctypes
import os
import signal
import sys
import time

_DEATH_OF_PARENT, _ADOPTION = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER of Linux
_PAUSE_S = 0.005


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
