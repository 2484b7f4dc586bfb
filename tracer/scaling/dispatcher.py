"""Deals tasks to workers: those that are asked for first, each to a worker that has its data.

Workers come and go. A task of a lost worker is dealt again, and a worker that cannot open a job
gets no further task of it. `run` is what runs in a worker: it opens jobs, and calls their methods,
one at a time. `version` tells what results depend on beside model and data. The workers of a
`ProcessPool` are processes on this machine, which end with this one.
"""

import contextlib
import hashlib
import importlib
import os
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from itertools import count
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Protocol

from tracer.containment import memory
from tracer.containment.calls import Call, Reply, Worker
from tracer.errors import CrashError, LimitError, TracerError
from tracer.scaling.pool import Job, Note, Task
from tracer.support.temporary import TemporaryFolder

_MOST_DEATHS = 4
"""Workers that a task may cost: one that kills every worker must end."""

Done = Callable[[Any, BaseException | None], None]
"""Called with the result of a task, or its exception."""


class LostError(Exception):
    """The worker died or left before the task ended."""


class Seat(Protocol):
    """A worker: it runs tasks, of which `depth` are sent to it at a time."""

    name: str
    depth: int

    def start(self, task: Task, done: Done) -> None:
        """Begins a task, and calls `done` from another thread, with LostError if the worker died.

        With CrashError, the worker died of the task, and has been replaced.
        """


@dataclass(eq=False, slots=True)
class _Entry:
    """A task, its future, the place in the queue, and the workers that died with it."""

    task: Task
    future: "Future[Any]"
    number: int
    deaths: int = 0


@dataclass(slots=True)
class _Used:
    """What the dispatcher knows of a seat: running tasks, and jobs that it cannot open."""

    running: set[_Entry] = field(default_factory=set)
    refused: dict[str, Exception] = field(default_factory=dict)


class Dispatcher:
    """Deals tasks to seats. Any thread may call it."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._lock = RLock()
        self._numbers = count()
        self._waiting: list[_Entry] = []
        self._seats: dict[Seat, _Used] = {}
        self._homes: dict[tuple[str, int], Seat] = {}
        self._told: set[Seat] = set()
        self._ended: BaseException | None = None

    @property
    def seats(self) -> list[Seat]:
        """The workers in use."""
        with self._lock:
            return [*self._seats]

    @property
    def waiting(self) -> int:
        """The number of tasks that no worker has yet."""
        return len(self._waiting)

    def submit(self, task: Task) -> "Future[Any]":
        """Returns the future result of a task. Raises what `end` was given."""
        future: Future[Any] = Future()
        with self._lock:
            self.check()
            self._waiting.append(_Entry(task, future, next(self._numbers)))
            self._deal()
        return future

    def forget(self, job: str) -> None:
        """Lets tasks of a job that still run end unheard: nobody waits for them any more."""
        with self._lock:
            for used in self._seats.values():
                used.running = {each for each in used.running if each.task.job != job}

    def check(self) -> None:
        """Raises what `end` was given, if it was called."""
        if self._ended is not None:
            raise self._ended

    def add(self, seat: Seat) -> None:
        """Uses a further worker."""
        with self._lock:
            self._seats[seat] = _Used()
            self._deal()

    def remove(self, seat: Seat) -> None:
        """Deals the tasks of a worker that is gone to others."""
        with self._lock:
            used = self._seats.pop(seat, None)
            self._homes = {home: own for home, own in self._homes.items() if own is not seat}
            for entry in used.running if used is not None else ():
                self._again(entry, CrashError(f"worker {seat.name} died or left"))
            self._deal()

    def end(self, error: BaseException) -> None:
        """Lets all tasks that have not ended raise `error`, and further ones as well."""
        with self._lock:
            self._ended = error
            entries = [*self._waiting, *(e for used in self._seats.values() for e in used.running)]
            self._waiting.clear()
            self._seats.clear()
        for entry in entries:
            if not entry.future.done() and not entry.future.cancel():
                entry.future.set_exception(error)

    def _deal(self) -> None:
        """Sends waiting tasks to workers, while any has room."""
        while (pair := self._next()) is not None:
            seat, entry = pair
            self._waiting.remove(entry)
            if not entry.future.running() and not entry.future.set_running_or_notify_cancel():
                continue
            self._seats[seat].running.add(entry)
            self._homes.setdefault((entry.task.job, entry.task.home), seat)
            seat.start(entry.task, partial(self._finish, seat, entry))

    def _next(self) -> tuple[Seat, _Entry] | None:
        """The next task and its worker: the least busy one that has room, and may take a task.

        A worker takes urgent tasks first, then those of its own home, then others; one of another
        worker's home alone where that one has several waiting.
        """
        self._waiting = [each for each in self._waiting if not each.future.cancelled()]
        homes = [self._homes.get((each.task.job, each.task.home)) for each in self._waiting]
        backlog = Counter(homes)
        for seat, used in sorted(self._seats.items(), key=lambda item: len(item[1].running)):
            if len(used.running) >= seat.depth:
                continue
            ranks: list[tuple[bool, int, int, _Entry]] = []
            for entry, home in zip(self._waiting, homes, strict=True):
                job, is_urgent = entry.task.job, entry.task.urgent
                if job in used.refused:
                    continue
                if home is None or home is seat or job in self._seats[home].refused:
                    ranks.append((not is_urgent, int(home is not seat), entry.number, entry))
                elif backlog[home] > 1:
                    ranks.append((not is_urgent, 2, entry.number, entry))
            if ranks:
                return seat, min(ranks)[-1]  # no two have the same number
        return None

    def _finish(self, seat: Seat, entry: _Entry, result: Any, error: BaseException | None) -> None:
        with self._lock:
            used = self._seats.get(seat)
            if used is None or entry not in used.running:
                return  # the worker is gone, and the task was dealt again
            if isinstance(error, LostError):
                self.remove(seat)  # with all its tasks, until the pool finds it again
                return
            used.running.remove(entry)
            if isinstance(error, CannotOpenError):
                # another worker has the task; where no worker opens the job, it has the error
                job = entry.task.job
                used.refused[job] = error.reason
                self._waiting.append(entry)
                if all(job in each.refused for each in self._seats.values()):
                    for waiting in [each for each in self._waiting if each.task.job == job]:
                        self._waiting.remove(waiting)
                        if not waiting.future.cancelled():
                            waiting.future.set_exception(error.reason)
            elif isinstance(error, CrashError):
                self._again(entry, error)
            elif error is not None:
                entry.future.set_exception(error)
            else:
                # another worker has opened the job: now it is told who cannot, and why
                for other, known in self._seats.items():
                    reason = known.refused.get(entry.task.job)
                    if reason is not None and other not in self._told:
                        self._told.add(other)
                        self._note(f"worker {other.name} is not used: {reason}")
                entry.future.set_result(result)
            self._deal()

    def _again(self, entry: _Entry, error: Exception) -> None:
        entry.deaths += 1
        if entry.deaths < _MOST_DEATHS:
            self._waiting.append(entry)
        else:
            entry.future.set_exception(error)


_MOST = 2
"""Jobs that are open at a time: an evaluation on all samples takes turns with one on some."""

_opened: OrderedDict[str, Any] = OrderedDict()
_lock = Lock()


def run(task: Task, threads: int | None, job: bytes | Path) -> Any:
    """Returns the result of a task. Raises what its method raises.

    `job` is the pickled job, or a file that has it; it is read where it is not open yet. Raises
    CannotOpenError where that fails.
    """
    with _lock:
        if task.job not in _opened:
            try:
                data = job.read_bytes() if isinstance(job, Path) else job
                opened = pickle.loads(data).open(threads)  # noqa: S301 - it comes from our client
            except (TracerError, OSError) as error:
                raise CannotOpenError(error) from error
            _opened[task.job] = opened
        _opened.move_to_end(task.job)
        while len(_opened) > _MOST:
            _opened.popitem(last=False)
        return getattr(_opened[task.job], task.method)(*task.arguments)


class CannotOpenError(Exception):
    """A worker cannot open a job: it lacks the data, or the files of the model.

    Another worker may be able to.
    """

    @property
    def reason(self) -> Exception:
        """The error that it met."""
        error: Exception = self.args[0]
        return error


PACKAGE = "tracer-onnx"
_COMPUTING = ("numpy", "numba", "onnx", "ml_dtypes")
"""Packages whose other versions may round otherwise."""
_DIGITS = 12


@cache
def version() -> str:
    """Returns the versions of the package and of what it computes with, and a hash of its code."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1]
    walk = os.walk(folder, followlinks=True)  # in a checkout, analyzers and exporters are links
    files = (Path(root, name) for root, _, names in walk for name in names)
    for file in sorted(file for file in files if file.suffix == ".py"):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(file.read_bytes())
    others = ", ".join(f"{name} {metadata.version(name)}" for name in _COMPUTING)
    code = digest.hexdigest()[:_DIGITS]
    return f"{metadata.version(PACKAGE)} (code {code}, {others})"


_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that libraries read their number of threads from when they are loaded."""


class ProcessPool:
    """Runs tasks in `workers` processes, which share the processors, or `threads` each.

    Each loads `modules` as it starts.
    """

    def __init__(
        self, workers: int, threads: int | None, note: Note, modules: Sequence[str]
    ) -> None:
        own = threads or max(memory.processor_count() // workers, 1)
        self._folder = TemporaryFolder()
        self._dispatcher = Dispatcher(note)
        self._seats = [
            _Process(f"{n + 1} of {workers}", own, self._folder.path, modules)
            for n in range(workers)
        ]
        for seat in self._seats:
            self._dispatcher.add(seat)

    @property
    def workers(self) -> int:
        """The number of processes."""
        return len(self._seats)

    def share(self, job: Job) -> str:
        """Writes the job to a file, which each process reads once."""
        data = pickle.dumps(job.portable(), pickle.HIGHEST_PROTOCOL)
        key = hashlib.sha256(data).hexdigest()
        (self._folder.path / key).write_bytes(data)
        return key

    def forget(self, job: str) -> None:
        """Removes the file of a job; processes forget it when they open others."""
        self._dispatcher.forget(job)
        (self._folder.path / job).unlink(missing_ok=True)

    def submit(self, task: Task) -> "Future[object]":
        """Returns the future result of a task."""
        return self._dispatcher.submit(task)

    def close(self) -> None:
        """Kills the processes."""
        self._dispatcher.end(CrashError("the pool of processes was closed"))
        for seat in self._seats:
            seat.end()
        self._folder.__exit__()


class _Process:
    """A process that reads jobs from `folder`; one that dies is replaced by a new one.

    A single thread starts it and waits for it: on Linux, a process dies with that thread.
    """

    depth = 1

    def __init__(self, name: str, threads: int, folder: Path, modules: Sequence[str]) -> None:
        self.name = name
        self._threads = threads
        self._folder = folder
        self._lock = Lock()
        self._worker: Worker | None = None
        self._ended = False
        self._thread = ThreadPoolExecutor(1, f"worker {name}")
        self._thread.submit(self._load, modules)

    def start(self, task: Task, done: Done) -> None:
        """Begins a task."""
        self._thread.submit(self._run, task, done)

    def end(self) -> None:
        """Kills the process."""
        with self._lock:
            self._ended = True
            if self._worker is not None:
                self._worker.kill()
        self._thread.shutdown(cancel_futures=True)
        self._drop()

    def _load(self, modules: Sequence[str]) -> None:
        """Loads what the jobs need, while this process reads the data."""
        with contextlib.suppress(CrashError, LimitError):  # the first task will meet it again
            self._call(Call(_import, {"names": modules}, (), None, None))

    def _run(self, task: Task, done: Done) -> None:
        arguments = {"task": task, "threads": self._threads, "job": self._folder / task.job}
        try:
            reply = self._call(Call(run, arguments, (), None, None))
        except (CrashError, LimitError) as error:
            self._drop()
            done(None, error)
        except BaseException as error:
            done(None, error)
        else:
            done(reply.value, reply.error)

    def _call(self, call: Call) -> Reply:
        with self._lock:
            if self._ended:
                raise CrashError("the process was asked to end")
            if self._worker is None:
                self._worker = Worker(environment=dict.fromkeys(_THREADS, str(self._threads)))
            worker = self._worker
        return worker.call(call)

    def _drop(self) -> None:
        with self._lock:
            if self._worker is not None:
                self._worker.kill()
                self._worker.end()
                self._worker = None


def _import(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
