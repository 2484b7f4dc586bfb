"""A second run after a crash, which tells the node that crashes and does nothing else.

It goes the way of the first run up to the first model that a runtime runs. There it tries parts of
the model, each in a process of its own.
"""

import os
import time
from collections.abc import Callable
from typing import NoReturn

from tracer.containment import activity, watch

FOUND = 77
"""Exit code of a process that tells the cause on its page."""

MOST_S = 20.0
"""Seconds that a search may take: nobody waits long for the name of a node."""

_is_on = False


def seconds(deadline: float) -> float:
    """Returns for how many seconds to search before a time limit, of the monotonic clock, or 0."""
    return min(MOST_S, max(0.0, deadline - time.monotonic())) if deadline else MOST_S


def begin() -> None:
    """Makes this process a search: it writes nothing, neither results nor messages."""
    global _is_on
    _is_on = True
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)


def is_on() -> bool:
    """Returns whether this process is a search."""
    return _is_on


def crashes(trial: Callable[[], object]) -> bool:
    """Returns whether `trial` dies of a signal, in a process of its own."""
    global _is_on
    us = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            watch.die_with(us)
            _is_on = False
            trial()
        finally:
            os._exit(0)  # an exception is no crash
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def tell(where: str, action: str, remedy: str) -> NoReturn:
    """Ends this process, with what the first one did when it crashed."""
    page = activity.page()
    assert page is not None
    page.write(activity.Activity(where, action, remedy))
    os._exit(FOUND)
