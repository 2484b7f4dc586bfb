"""Runs tasks in this process, each as soon as it is submitted."""

from concurrent.futures import Future
from itertools import count
from typing import Any

from tracer.scaling.pool import Job, Task


class SerialPool:
    """Runs tasks in the calling thread; their exceptions rise from `submit`."""

    workers = 0

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._opened: dict[str, Any] = {}
        self._keys = count()

    def share(self, job: Job) -> str:
        """Opens the job; it is not copied."""
        key = str(next(self._keys))
        self._opened[key] = job.open(self._threads)
        return key

    def forget(self, job: str) -> None:
        """Frees the opened job."""
        self._opened.pop(job, None)

    def submit(self, task: Task) -> "Future[Any]":
        """Runs the task, and returns its result as a future."""
        future: Future[Any] = Future()
        future.set_result(getattr(self._opened[task.job], task.method)(*task.arguments))
        return future

    def close(self) -> None:
        """Forgets the jobs."""
        self._opened.clear()
