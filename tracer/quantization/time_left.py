"""Ends a measurement early where the time limit of the command does not suffice for all of it."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tracer.containment import signals

_Part = TypeVar("_Part")


def within_time(parts: Iterable[_Part], share: float) -> Iterator[_Part]:
    """Yields `parts` while `share` of the time that is left suffices; the first in any case.

    A part is expected to take as long as the longest one before. What is done with a part counts.
    """
    began = time.monotonic()
    ends = began + share * signals.seconds_left()
    longest = 0.0
    for part in parts:
        now = time.monotonic()
        if longest and now + longest > ends:
            return
        yield part
        longest = max(longest, time.monotonic() - now)
