"""A child process for calls from Python: makes one call after another, as its parent asks."""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tracer.containment import activity, memory, search, signals, supervisor
from tracer.errors import TracerError
from tracer.support.progress import Progress

_REPORT_S = 0.2
"""Shortest time between two reports of progress: the parent wakes for each."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make, within limits of seconds and bytes where they are given.

    The function has a further parameter for each of `callbacks`, which are called in the parent.
    With `searches`, it is a second run after a crash (see `search`).
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    callbacks: tuple[str, ...]
    seconds: float | None
    nbytes: int | None
    searches: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker sends: arguments for the callback of a name, or at last a value or an error.

    A call that is `unreadable` has classes or functions that the child does not find.
    """

    callback: str = ""
    value: Any = None
    error: BaseException | None = None
    unreadable: bool = False


def serve(requests: int, replies: int, page: int, alarm: int, frames: int, parent: int) -> None:
    """Makes calls until the parent closes `requests`; arguments but the last are descriptors."""
    shared = activity.Page.of_file(page, alarm)
    supervisor.become_child(shared, os.fdopen(frames, "wb", buffering=0), parent)
    most = memory.limited_to()
    receiving, sending = Connection(requests, writable=False), Connection(replies, readable=False)
    while True:
        try:
            data = receiving.recv_bytes()
        except EOFError:
            return
        if most is not None:  # the call before may have had a limit of its own
            memory.limit(most)
        reply = _answered(data, sending)
        shared.set_times(0.0, 0.0)
        shared.keep(False)
        sending.send_bytes(reply)


def _answered(data: bytes, sending: Connection) -> bytes:
    """Returns the last reply to a call, as bytes."""
    try:
        with signals.raising():
            try:
                call: Call = pickle.loads(data)  # noqa: S301 - it comes from our parent
            except (Exception, SystemExit):  # whatever the modules of the arguments raise
                return _bytes(Reply(unreadable=True))
            if call.searches:
                search.begin()
            if call.nbytes is not None:
                memory.limit(call.nbytes)
            if call.seconds is not None:
                signals.limit_seconds(call.seconds)
            callbacks = {name: _callback(name, sending) for name in call.callbacks}
            return _bytes(Reply(value=call.function(**call.arguments, **callbacks)))
    except signals.TimeUp as up:
        return _bytes(Reply(error=up.error))
    except BaseException as error:  # interrupts and sys.exit are the caller's too
        return _failure(error, traceback.format_exc())


def _failure(error: BaseException, text: str) -> bytes:
    """Returns the reply for an exception, with its traceback unless it is meant for users."""
    if not isinstance(error, TracerError):
        error.add_note(f"In the child process:\n{text}")
    try:
        data = _bytes(Reply(error=error))
        pickle.loads(data)  # noqa: S301 - some exceptions can only be written
    except Exception:
        return _bytes(Reply(error=RuntimeError(text)))
    return data


def _callback(name: str, sending: Connection) -> Callable[..., None]:
    """Returns a function that sends its arguments to the parent, and does not wait for it."""

    def send(*arguments: Any) -> None:
        sending.send_bytes(_bytes(Reply(callback=name, value=arguments)))

    return activity.noting(_at_intervals(send)) if name == "progress" else send


def _at_intervals(progress: Progress) -> Progress:
    """Returns `progress`, left out where the last report was just now, unless it is the last."""
    due = 0.0

    def report(done: int, total: int, task: str) -> None:
        nonlocal due
        if time.monotonic() >= due or done >= total:
            progress(done, total, task)
            due = time.monotonic() + _REPORT_S

    return report


def _bytes(reply: Reply) -> bytes:
    return pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)  # copies arrays once, not twice
