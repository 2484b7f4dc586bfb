"""When a what-if ends with what it has found: its seconds are spent, or it was asked to end."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tracer.containment import signals

_RESERVE, _STEPS_IN_PROGRESS = 0.1, 2
"""Share of the seconds, and steps, that are kept back for batches in progress and the result.

The limit of the process itself ends what takes longer.
"""


class OutOfTimeError(Exception):
    """No evaluation can be made any more; those that were made still answer."""


class Deadline:
    """The end of a what-if that may take so many seconds from now; None is without end."""

    def __init__(self, seconds: float | None = None) -> None:
        self._ends = math.inf if seconds is None else time.monotonic() + seconds
        self._reserve = _RESERVE * (seconds or 0)
        self._checked: float | None = None
        self._ended = ""

    def part(self, share: float) -> "Deadline":
        """Returns a deadline after this share of the time that is left."""
        if math.isinf(self._ends):
            return Deadline()
        return Deadline(share * max(self._ends - time.monotonic(), 0.0))

    @property
    def end_reason(self) -> str:
        """What ended the what-if; '' where nothing did, or it ended by itself."""
        return self._ended

    def check(self) -> None:
        """Raises OutOfTimeError where a batch would end too late, or a signal has arrived."""
        now = time.monotonic()
        if self._checked is not None:
            self._reserve = max(self._reserve, _STEPS_IN_PROGRESS * (now - self._checked))
        self._checked = now
        if not self._ended and now > self._ends - self._reserve:
            self._ended = "out of time"
        self._ended = self._ended or signals.ending()
        if self._ended:
            raise OutOfTimeError(self._ended)

    @contextmanager
    def turning_signals(self) -> Iterator[None]:
        """Raises OutOfTimeError in place of the exception of a signal that arrives inside."""
        try:
            yield
        except signals.ENDINGS as error:
            self._ended = signals.ending()
            if not self._ended:  # a caller handles signals its own way
                raise
            raise OutOfTimeError(self._ended) from error
