"""Turns Ctrl-C, SIGTERM and the end of a time limit into exceptions in the main thread."""

import contextlib
import functools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tracer.containment import activity, watch
from tracer.errors import LimitError

_DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""The signals that ask a command to end, with the handlers that we replace."""


_TIDYING_S = 30.0
"""Seconds in which a process that noticed that it was told to end may store what it keeps.

A profile of 8,000 nodes takes four; who cannot wait sends a second signal.
"""


_SOON_S = 0.01
"""Seconds after which an exception that Python dropped rises again."""


class Terminated(BaseException):
    """SIGTERM arrived. As an exception it lets the command delete its temporary files."""


class TimeUp(BaseException):
    """The time limit was reached. It is no Exception, so that no code takes it for a failure."""

    def __init__(self) -> None:
        page = activity.page()  # a process without a supervisor has no patience
        self.error = time_is_up(activity.now(), page is None or bool(page.times[0]))
        super().__init__(str(self.error))


_EXCEPTIONS: dict[int, type[BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
    **({signal.SIGALRM: TimeUp} if hasattr(signal, "SIGALRM") else {}),
}

ENDINGS = (KeyboardInterrupt, Terminated, TimeUp)
"""The exceptions of signals."""

_received: list[BaseException] = []
_noting: list[None] = []
_keeping_nothing: list[None] = []
_listeners: list[Callable[[], None]] = []


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Makes each signal raise its exception once, and again where the code dropped it.

    Python drops what rises in a finalizer or a callback: there it rises again a moment later. What
    an extension module replaced, or dropped without a word, rises at the end.

    A second signal is ignored under a supervisor, which ends the process itself if the first had
    no effect. Otherwise it has its default effect. Signals that the caller handles are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [
        number
        for number, plain in _DEFAULTS.items()
        if signal.getsignal(number) in (plain, signal.SIG_DFL)
    ]
    for number in ours:
        signal.signal(number, _raise)
    if activity.page() is not None:  # a supervisor without patience sends it
        signal.signal(signal.SIGALRM, _raise)
    telling = sys.unraisablehook
    sys.unraisablehook = functools.partial(_on_dropped, telling)
    try:
        yield
        if _received:
            raise _received[0]
    except Exception as error:
        if _received:  # an extension module replaces it if it is being imported
            raise _received[0] from error
        raise
    finally:
        sys.unraisablehook = telling
        _received.clear()
        # the time limit ends, and signals have their default effect: a process may be ending now
        if hasattr(signal, "SIGALRM") and signal.getsignal(signal.SIGALRM) in (_raise, _rise):
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number in ours:
            if activity.page() is None:
                signal.signal(number, _DEFAULTS[number])
            elif signal.getsignal(number) is _raise:  # from now on nobody is told an exception
                signal.signal(number, signal.SIG_DFL)


def ending() -> str:
    """Returns what asked this command to end; '' where nothing did, or nothing is kept.

    Code that catches one of ENDINGS to keep results returns at once: the exception rises again.
    """
    words = {KeyboardInterrupt: "interrupted", Terminated: "terminated", TimeUp: "out of time"}
    return words[type(_received[0])] if _received and not _keeping_nothing else ""


def keep(something: bool) -> None:
    """Says whether this process has results that it keeps if it is asked to end."""
    page = activity.page()
    if page is not None:
        page.keep(something and not _keeping_nothing)


@contextlib.contextmanager
def keep_nothing() -> Iterator[None]:
    """Keeps no results of what is inside if this command is asked to end: the exception passes.

    It is for what a command needs whole, and would go on with.
    """
    _keeping_nothing.append(None)
    try:
        yield
    finally:
        _keeping_nothing.pop()


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Raises nothing inside when a signal arrives: `ending` tells it afterwards.

    It is for what must not be broken off to keep results, and takes no more than some seconds.
    """
    _noting.append(None)
    try:
        yield
    finally:
        _noting.pop()
    if _keeping_nothing and _received and not _noting:
        raise _received[0]


def settle() -> bool:
    """Returns whether what ended this command was its time limit, of which nothing rises again.

    Call it where the results are complete all the same.
    """
    if ending() != "out of time":
        return False
    _received.clear()
    return True


def raise_again() -> None:
    """Raises the exception of what asked this command to end, for code that has nothing to keep."""
    raise _received[0]


def time_is_up(last: activity.Activity, limited: bool) -> LimitError:
    """Returns the error that says what a process did when its time was up.

    That was the end of its time limit, or the end of patience where it was not `limited`.
    """
    where = f"{last.where}: " if last.where else ""
    doing = f" while {last}" if str(last) else ""
    reached, option = "the time limit was reached", "Raise --max-seconds"
    if not limited:
        patience_s = activity.PATIENCE_S
        patience = f"{patience_s / 60:g} minutes" if patience_s >= 120 else f"{patience_s:g} s"
        reached, option = f"no step ended in {patience}", "Set --max-seconds"
    return LimitError(f"{where}{reached}{doing}", f"{option} if it should take longer.")


def limit_seconds(seconds: float) -> None:
    """Makes TimeUp rise in the main thread after `seconds`, inside `raising`.

    A supervisor is told as well: it ends the process if the exception has no effect. A search has
    a limit of its own.
    """
    if watch.is_search():
        return
    page = activity.page()
    if page is not None:
        page.set_times(time.monotonic() + seconds, 0.0)
    if hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, _raise)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))  # 0 would be no limit


def lift_limit() -> None:
    """Ends the time limit of this process: its results are complete, and are being written."""
    page = activity.page()
    if page is not None and not _received:
        page.set_times(0.0, 0.0)
    if hasattr(signal, "SIGALRM") and (page or signal.getsignal(signal.SIGALRM) is _raise):
        signal.setitimer(signal.ITIMER_REAL, 0)


def seconds_left() -> float:
    """Returns the seconds until the time limit of this process; infinite without one."""
    if not hasattr(signal, "ITIMER_REAL"):
        return math.inf
    return signal.getitimer(signal.ITIMER_REAL)[0] or math.inf


def on_arrival(listener: Callable[[], None]) -> None:
    """Calls `listener` in another thread when a signal arrives, before its exception rises.

    The exception waits until native code returns; the listener can make it return. This needs the
    wake-up descriptor of the interpreter, so nothing happens without a supervisor.
    """
    if activity.page() is None or threading.current_thread() is not threading.main_thread():
        return
    if not _listeners:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

        def listen() -> None:
            while arrived := os.read(reading, 64):
                if set(arrived) & _EXCEPTIONS.keys():
                    for each in _listeners:
                        each()

        threading.Thread(target=listen, name="signals", daemon=True).start()
    _listeners.append(listener)


def _raise(number: int, frame: FrameType | None) -> None:
    exception = _EXCEPTIONS[number]()
    _received.append(exception)
    page = activity.page()
    if page is not None:
        page.set_times(page.times[0], time.monotonic() + _TIDYING_S)
    signal.signal(number, signal.SIG_IGN if page else _DEFAULTS.get(number, signal.SIG_DFL))
    if not _noting:
        raise exception


def _on_dropped(
    tell: "Callable[[sys.UnraisableHookArgs], Any]", dropped: "sys.UnraisableHookArgs"
) -> None:
    """Lets an exception of ours that Python dropped rise again, once its callback has returned."""
    if dropped.exc_value not in _received:
        tell(dropped)
    elif hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _rise)
        signal.setitimer(signal.ITIMER_REAL, _SOON_S)


def _rise(number: int, frame: FrameType | None) -> None:
    if _received and not _noting:
        raise _received[0]
