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

from tracer.containment import activity, memory, signals, supervisor
from tracer.errors import TracerError
from tracer.support.progress import Progress

_REPORT_S = 0.2
"""Shortest time between two reports of progress: the parent wakes for each."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make, within limits of seconds and bytes where they are given.

    With `reports`, the function has a parameter `progress`, and the steps go to the parent.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    reports: bool
    seconds: float | None
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker sends: steps of progress, or at last a value or an error."""

    steps: tuple[int, int, str] | None = None
    value: Any = None
    error: BaseException | None = None


def serve(requests: int, replies: int, page: int, alarm: int, frames: int, parent: int) -> None:
    """Makes calls until the parent closes `requests`; arguments but the last are descriptors."""
    shared = activity.Page.of_file(page, alarm)
    supervisor.become_child(shared, os.fdopen(frames, "wb", buffering=0), parent)
    receiving, sending = Connection(requests, writable=False), Connection(replies, readable=False)
    while True:
        try:
            data = receiving.recv_bytes()
        except EOFError:
            return
        reply = _answered(data, sending)
        shared.set_times(0.0, 0.0)
        sending.send_bytes(reply)


def _answered(data: bytes, sending: Connection) -> bytes:
    """Returns the last reply to a call, as bytes."""
    try:
        with signals.raising():
            call: Call = pickle.loads(data)  # noqa: S301 - it comes from our parent
            if call.nbytes is not None:
                memory.limit(call.nbytes)
            if call.seconds is not None:
                signals.limit_seconds(call.seconds)
            reports = {"progress": activity.noting(_reporter(sending))} if call.reports else {}
            return pickle.dumps(Reply(value=call.function(**call.arguments, **reports)))
    except signals.TimeUp as up:
        return pickle.dumps(Reply(error=up.error))
    except BaseException as error:  # interrupts and sys.exit are the caller's too
        return _failure(error, traceback.format_exc())


def _failure(error: BaseException, text: str) -> bytes:
    """Returns the reply for an exception, with its traceback unless it is meant for users."""
    if not isinstance(error, TracerError):
        error.add_note(f"In the child process:\n{text}")
    try:
        data = pickle.dumps(Reply(error=error))
        pickle.loads(data)  # noqa: S301 - some exceptions can only be written
    except Exception:
        return pickle.dumps(Reply(error=RuntimeError(text)))
    return data


def _reporter(sending: Connection) -> Progress:
    due = 0.0

    def report(done: int, total: int, task: str) -> None:
        nonlocal due
        if time.monotonic() >= due or done >= total:
            sending.send_bytes(pickle.dumps(Reply(steps=(done, total, task))))
            due = time.monotonic() + _REPORT_S

    return report
