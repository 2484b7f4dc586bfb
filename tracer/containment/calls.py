"""Makes calls from Python in a child process, which is kept for the next call.

The child is a new interpreter, not a fork: this process may have threads, and its `__main__` may
be a script, a notebook or standard input. `serve` is what it does. A `RemoteProcess` keeps objects
in such a child, which may import other releases of packages than this process.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar, cast

from tracer.containment import activity, memory, signals, supervisor, watch
from tracer.errors import CrashError, InputError, LimitError, TracerError
from tracer.support.temporary import sweep

_Result = TypeVar("_Result")

_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tracer.containment.calls import serve; serve(*map(int, sys.argv[2:]))"
)
_CALLBACKS = ("progress", "receive", "keep", "note")
"""Arguments that are called in this process, with what the child sends. They return nothing."""
_PER_TEST = "PYTEST_CURRENT_TEST"
"""A variable that says nothing to the child, and is another one for each test."""
_REPORT_S = 0.2
"""Shortest time between two reports of progress: the parent wakes for each."""

_idle: list[Worker] = []
_inherited: list[Worker] = []
"""Workers of the process that forked this one: kept, as what is collected warns of open files."""


def contained(
    function: Callable[..., _Result],
    arguments: Mapping[str, Any],
    seconds: float | None = None,
    nbytes: int | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> _Result:
    """Returns `function(**arguments)`, computed in a child process within limits of the child.

    The arguments `progress`, `receive`, `keep` and `note` are called here. `meanwhile` is called
    while the child starts: what it imports need not be waited for later. Raises what the function
    raises, LimitError when the time is up, and CrashError when the child dies. Arguments that
    cannot be pickled, such as functions of a notebook, or that the child cannot read, keep the
    call in this process, without limits.
    """
    if supervisor.in_process():  # feeds may be large: nothing is pickled in vain
        return function(**arguments)
    callbacks = {name: arguments[name] for name in _CALLBACKS if callable(arguments.get(name))}
    rest = {name: value for name, value in arguments.items() if name not in callbacks}
    call = Call(function, rest, tuple(callbacks), seconds, nbytes)
    data = _pickled(call)
    if data is None:
        return function(**arguments)
    worker = _idle_worker()
    try:
        worker.send(data)
        meanwhile()
        reply = worker.reply(callbacks)
    except BaseException as error:
        worker.end()
        if isinstance(error, CrashError) and worker.page.runs_model:
            raise _find_node(call, worker) or error from None
        raise
    _idle.append(worker)
    if reply.unreadable:
        return function(**arguments)
    if reply.error is not None:
        raise reply.error
    result: _Result = reply.value
    return result


def _pickled(call: Call) -> bytes | None:
    """Returns the call as bytes; None where the child could not read them."""
    try:
        data = pickle.dumps(call, pickle.HIGHEST_PROTOCOL)
    except Exception:  # each class refuses with an exception of its own
        return None
    return None if b"__main__" in data else data


def _find_node(call: Call, dead: Worker) -> CrashError | None:
    """Returns the error of a worker that crashed, with the node that a second run finds."""
    seconds = watch.search_seconds(dead.page.times[0])
    if not seconds:
        return None
    data = _pickled(replace(call, callbacks=(), searches=True))
    assert data is not None
    worker = Worker(dead.around)
    worker.page.set_times(time.monotonic() + seconds, 0.0)
    try:
        worker.send(data)
        worker.reply({})
    except (CrashError, LimitError):
        worker.end()
        return dead.crash(worker.page.read()) if worker.code == watch.FOUND else None
    except BaseException:
        worker.end()
        raise
    worker.end()
    return None


def _idle_worker() -> Worker:
    """Returns an idle worker or a new one.

    What a child inherits when it starts must not have changed since in this process.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    folder = None
    with contextlib.suppress(OSError):
        folder = os.getcwd()  # noqa: PTH109 - as text
    environment = {name: text for name, text in os.environ.items() if name != _PER_TEST}
    around = os.getpid(), environment, folder, list(sys.path), cores
    while True:
        try:
            worker = _idle.pop()
        except IndexError:  # none is left, or another thread took the last one
            break
        if worker.around == around and worker.is_alive:
            return worker
        if worker.around[0] == os.getpid():
            worker.end()
        else:
            _inherited.append(worker)
    try:
        return Worker(around)
    except OSError as error:
        raise InputError(
            f"no child process can be started ({error.strerror or error})",
            "Raise the limits of this process (ulimit -n, -u), or give in_process=True.",
        ) from error


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


class Worker:
    """A child process, the pipes to it, its page, and the file for its last traceback.

    It dies with this process. `environment` are variables that it has in addition, and
    `folders` come first where it imports.
    """

    def __init__(
        self,
        around: tuple[Any, ...] = (),
        environment: Mapping[str, str] | None = None,
        folders: Sequence[str] = (),
    ) -> None:
        sweep()
        self.around = around
        self._traceback = ""
        # a child opens streams of its own over what has the numbers of closed ones
        nulls = supervisor.occupy_streams()
        page, self._frames = _traceback_file(), _traceback_file()
        self._alarm, alarm = os.pipe()
        requests, asking = os.pipe()
        answering, replies = os.pipe()
        self.page = activity.Page.of_file(page.fileno(), alarm)
        theirs = (requests, replies, page.fileno(), alarm, self._frames.fileno())
        numbers = [str(number) for number in (*theirs, os.getpid())]

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-P", "-c", _CODE, json.dumps([*folders, *sys.path]), *numbers],
                stdin=subprocess.DEVNULL,
                pass_fds=theirs,
                process_group=0,  # Ctrl-C comes here first
                env={**os.environ, **(environment or {})},
            )

        may_end = threading.current_thread() is not threading.main_thread()
        is_killed = sys.platform == "linux" and may_end  # when this thread ends
        self._process = _start_in_thread(start) if is_killed else start()
        for number in (requests, replies, *nulls):
            os.close(number)
        page.close()  # it stays mapped
        self._asking = Connection(asking, readable=False)
        self._answers = Connection(answering, writable=False)
        self._alarm_writer = alarm

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def send(self, data: bytes) -> None:
        """Asks for a call. Raises CrashError if the process died."""
        try:
            self._asking.send_bytes(data)
        except BrokenPipeError:
            raise self._death() from None

    def call(self, call: Call) -> Reply:
        """Makes a call without callbacks. Raises CrashError or LimitError if there is no reply."""
        self.send(pickle.dumps(call, pickle.HIGHEST_PROTOCOL))
        return self.reply({})

    def reply(self, callbacks: Mapping[str, Callable[..., object]]) -> Reply:
        """Returns the last reply to a call, and makes the callbacks before it.

        Waits until the deadline and the grace after it. Raises CrashError or LimitError if there is
        no last reply.
        """
        alarm = watch.Alarm(self._process.pid)
        while True:
            left = alarm.seconds_left(self.page)
            if left <= 0:
                raise signals.time_is_up(self.page.read(), bool(self.page.times[0]))
            ready = wait([self._answers, self._alarm], left)
            if self._alarm in ready:
                os.read(self._alarm, 64)
            if self._answers not in ready:
                continue
            try:
                reply: Reply = pickle.loads(self._answers.recv_bytes())  # noqa: S301 - our child's
            except EOFError:
                raise self._death() from None
            if not reply.callback:
                return reply
            callbacks[reply.callback](*reply.value)
            alarm = watch.Alarm(self._process.pid)

    def _death(self) -> CrashError:
        self._process.wait()
        self._frames.seek(0)
        self._traceback = self._frames.read().decode("utf-8", "replace")
        return self.crash(self.page.read())

    def crash(self, last: activity.Activity) -> CrashError:
        """Returns the error of the process, which died, if `last` is what it did."""
        assert self.code is not None
        return supervisor.crash(self.code, last, self._traceback)

    @property
    def code(self) -> int | None:
        """The exit code of the process, less than 0 for a signal; None while it runs."""
        return self._process.returncode

    def kill(self) -> None:
        """Ends the process at once, whatever it does; `reply` raises in the thread that waits."""
        self._process.kill()

    def end(self) -> None:
        """Ends the process, and removes what it left; an interrupted call may clean up first."""
        if self.is_alive:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(watch.GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        sweep()
        self._frames.close()
        self._asking.close()
        self._answers.close()
        os.close(self._alarm)
        os.close(self._alarm_writer)


def _start_in_thread(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Starts a process in a thread that lives as long as it does.

    Linux kills a child with the thread that made it (see `watch.die_with`), and that of the caller
    may end before the process does: an idle one waits for calls from any thread.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def hold() -> None:
        try:
            process = start()
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        with contextlib.suppress(ChildProcessError):  # it was awaited before
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=hold, name=f"{__name__} of a process", daemon=True).start()
    return started.result()


@atexit.register
def _end_workers() -> None:
    while _idle:
        worker = _idle.pop()
        if worker.around[0] == os.getpid():
            worker.end()


def serve(requests: int, replies: int, page: int, alarm: int, frames: int, parent: int) -> None:
    """Makes calls until the parent closes `requests`; arguments but the last are descriptors."""
    supervisor.occupy_streams()
    shared = activity.Page.of_file(page, alarm)
    supervisor.become_child(shared, os.fdopen(frames, "wb", buffering=0), parent)
    most = memory.limited_to()
    receiving, sending = Connection(requests, writable=False), Connection(replies, readable=False)
    while True:
        try:
            data = receiving.recv_bytes()
        except (EOFError, KeyboardInterrupt):  # the parent ends a child that waits by Ctrl-C
            return
        if most is not None:  # the call before may have had a limit of its own
            memory.limit(most)
        reply = _reply_to(data, sending)
        shared.set_times(0.0, 0.0)
        shared.keep(False)
        sending.send_bytes(reply)


def _reply_to(data: bytes, sending: Connection) -> bytes:
    try:
        with signals.raising():
            try:
                call: Call = pickle.loads(data)  # noqa: S301 - it comes from our parent
            except (Exception, SystemExit):  # whatever the modules of the arguments raise
                return _pickle_reply(Reply(unreadable=True))
            if call.searches:
                watch.begin_search()
            if call.nbytes is not None:
                memory.limit(call.nbytes)
            if call.seconds is not None:
                signals.limit_seconds(call.seconds)
            callbacks = {name: _callback(name, sending) for name in call.callbacks}
            return _pickle_reply(Reply(value=call.function(**call.arguments, **callbacks)))
    except signals.TimeUp as up:
        return _pickle_reply(Reply(error=up.error))
    except BaseException as error:  # interrupts and sys.exit are the caller's too
        text = traceback.format_exc()
        if not isinstance(error, TracerError):  # these are meant for users
            error.add_note(f"In the child process:\n{text}")
        try:
            data = _pickle_reply(Reply(error=error))
            pickle.loads(data)  # noqa: S301 - some exceptions can only be written
        except Exception:
            return _pickle_reply(Reply(error=RuntimeError(text)))
        return data


def _callback(name: str, sending: Connection) -> Callable[..., None]:
    """Returns a function that sends its arguments to the parent, and does not wait for it.

    Progress is left out where the last report was just now, unless it is the last.
    """
    due = 0.0

    def send(*arguments: Any) -> None:
        sending.send_bytes(_pickle_reply(Reply(callback=name, value=arguments)))

    def report(done: int, total: int, task: str) -> None:
        nonlocal due
        if time.monotonic() >= due or done >= total:
            send(done, total, task)
            due = time.monotonic() + _REPORT_S

    return activity.noting(report) if name == "progress" else send


def _pickle_reply(reply: Reply) -> bytes:
    return pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)  # copies arrays once, not twice


def _traceback_file() -> BinaryIO:
    return cast("BinaryIO", tempfile.TemporaryFile(buffering=0))


_held: dict[int, tuple[contextlib.ExitStack, Any]] = {}
"""In the child: what is open there, by number, and what closes it."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class RemoteProcess:
    """A child process whose imports look in `folders` first; it lives inside `with`."""

    folders: Sequence[str] = ()
    _worker: list[Worker] = field(default_factory=list, repr=False)

    def __enter__(self) -> Self:
        self._worker.append(Worker(folders=self.folders))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.pop().end()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns `function(*arguments)` of the child.

        Raises what it raises, and CrashError where the child dies.
        """
        call = Call(partial(function, *arguments), {}, (), None, None)
        self._worker[0].send(pickle.dumps(call, 4))  # of 5, numpy 1 reads no arrays of numpy 2
        reply = self._worker[0].reply({})
        if reply.unreadable:
            raise TypeError(f"{function.__qualname__}: the child cannot read the arguments")
        if reply.error is not None:
            raise reply.error
        return reply.value

    @contextlib.contextmanager
    def opened(
        self, opener: Callable[..., contextlib.AbstractContextManager[Any]], *arguments: Any
    ) -> Iterator[RemoteObject]:
        """Opens `opener(*arguments)` in the child; inside the block it is used from here.

        After an error it stays open: the child may still be busy, and ends with its `with` block.
        """
        number = self.call(_enter, opener, arguments)
        yield RemoteObject(self, number)
        self.call(_leave, number)


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """An open object of another process."""

    process: RemoteProcess
    number: int

    def call(self, method: str, *arguments: Any) -> Any:
        """Returns what a method of the object returns; raises as `RemoteProcess.call`."""
        return self.process.call(_ask, self.number, method, arguments)


def _enter(
    opener: Callable[..., contextlib.AbstractContextManager[Any]], arguments: Sequence[Any]
) -> int:
    number, stack = next(_numbers), contextlib.ExitStack()
    _held[number] = stack, stack.enter_context(opener(*arguments))
    return number


def _ask(number: int, method: str, arguments: Sequence[Any]) -> Any:
    return getattr(_held[number][1], method)(*arguments)


def _leave(number: int) -> None:
    _held.pop(number)[0].close()
