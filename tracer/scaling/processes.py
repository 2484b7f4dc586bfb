"""Runs tasks in processes on this machine, which end with this one."""

import contextlib
import hashlib
import importlib
import pickle
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from tracer.containment.calls import Call, Worker
from tracer.errors import CrashError, LimitError
from tracer.scaling import worker
from tracer.scaling.dispatcher import Dispatcher, Done
from tracer.scaling.pool import Job, Note, Task
from tracer.support import processors
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
        self.modules = modules
        own = threads or max(processors.available() // workers, 1)
        self._folder = TemporaryFolder()
        self._dispatcher = Dispatcher(note)
        self._seats = [_Process(f"{n + 1} of {workers}", own, self) for n in range(workers)]
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

    def submit(self, task: Task) -> "Future[Any]":
        """Returns the future result of a task."""
        return self._dispatcher.submit(task)

    def call(self, task: Task, threads: int) -> Call:
        """Returns the call that a process makes for a task."""
        file = self._folder.path / task.job
        arguments = {"task": task, "threads": threads, "job": file}
        return Call(worker.run, arguments, (), None, None)

    def close(self) -> None:
        """Kills the processes."""
        self._dispatcher.end(CrashError("the pool of processes was closed"))
        for seat in self._seats:
            seat.end()
        self._folder.__exit__()


class _Process:
    """A process and the thread that waits for it; one that dies is replaced by a new one."""

    depth = 1

    def __init__(self, name: str, threads: int, pool: ProcessPool) -> None:
        self.name = name
        self._threads = threads
        self._pool = pool
        self._tasks: SimpleQueue[tuple[Task, Done] | None] = SimpleQueue()
        self._lock = Lock()
        self._worker: Worker | None = None
        self._ended = False
        self._thread = Thread(target=self._serve, name=f"worker {name}", daemon=True)
        self._thread.start()

    def start(self, task: Task, done: Done) -> None:
        """Begins a task."""
        self._tasks.put((task, done))

    def end(self) -> None:
        """Kills the process."""
        with self._lock:
            self._ended = True
            if self._worker is not None:
                self._worker.kill()
        self._tasks.put(None)
        self._thread.join()

    def _serve(self) -> None:
        """Runs tasks, in the thread that the process dies with.

        Before, it loads what the jobs need, while this process reads the data.
        """
        with contextlib.suppress(CrashError, LimitError):  # the first task will meet it again
            self._open_worker().call(Call(_import, {"names": self._pool.modules}, (), None, None))
        while (item := self._tasks.get()) is not None and not self._ended:
            task, done = item
            try:
                reply = self._open_worker().call(self._pool.call(task, self._threads))
            except (CrashError, LimitError) as error:
                self._drop()
                done(None, error)
            except BaseException as error:
                done(None, error)
            else:
                done(reply.value, reply.error)
        self._drop()

    def _open_worker(self) -> Worker:
        with self._lock:
            if self._ended:
                raise CrashError("the process was asked to end")
            if self._worker is None:
                environment = dict.fromkeys(_THREADS, str(self._threads))
                self._worker = Worker(environment=environment)
            return self._worker

    def _drop(self) -> None:
        with self._lock:
            if self._worker is not None:
                self._worker.kill()
                self._worker.end()
                self._worker = None


def _import(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
