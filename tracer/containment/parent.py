"""Ties the life of a process to the life of its parent."""

import ctypes
import os
import signal
import sys

_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def die_with(parent: int) -> None:
    """Makes the system kill this process when `parent`, the number of its parent, dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it died before
            os.kill(os.getpid(), signal.SIGKILL)
