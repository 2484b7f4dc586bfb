"""Runs tasks in processes on this machine, which end with this one."""

import contextlib
import hashlib
import importlib
import pickle
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from tracer.containment import memory
from tracer.containment.calls import Call, Reply, Worker
from tracer.errors import CrashError, LimitError
from tracer.scaling.dispatcher import Dispatcher, Done, run
from tracer.scaling.pool import Job, Note, Task
from tracer.support.temporary import TemporaryFolder

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
