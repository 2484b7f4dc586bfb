"""What a pool is: it runs tasks, in this process or in others. `opened_pool` chooses one."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from tracer.errors import UsageError
from tracer.support.imports import require

_LOCAL = re.compile(r"local:([0-9]{1,4})")
_ADDRESS = re.compile(r"[a-z]+://\S+")

Note = Callable[[str], None]
"""Called with a sentence for the user: the address of a dashboard, a worker that is not used."""


class Job(Protocol):
    """What tasks have in common. It is pickled for other processes."""

    def portable(self) -> "Job":
        """Returns the job without what belongs to this process, such as its progress bar."""

    def open(self, threads: int | None) -> Any:
        """Returns the object whose methods the tasks call; it may use so many threads.

        None is the number that was set for this process.
        """


@dataclass(frozen=True, slots=True)
class Task:
    """A call of a method of an opened job; its result does not depend on the worker.

    `job` is the key that `Pool.share` returned. Tasks of one `home` go to one worker, which may
    have kept what they reuse, as long as it is alive and not behind. Tasks that are not `urgent`
    run where nothing else is left to do.
    """

    job: str
    method: str
    arguments: tuple[Any, ...]
    home: int = 0
    urgent: bool = True


class Pool(Protocol):
    """Runs tasks. Closing it ends what runs in other processes of this machine."""

    @property
    def workers(self) -> int:
        """How many tasks run at a time in other processes; 0 where tasks run in this one."""

    def share(self, job: Job) -> str:
        """Makes a job known to all workers, and returns its key."""

    def forget(self, job: str) -> None:
        """Frees what workers hold of a job, whose key it is."""

    def submit(self, task: Task) -> "Future[Any]":
        """Returns the future result of a task, which can be cancelled until it runs.

        Its exception is what the method raised, CrashError for a task of which several workers
        died, or ClusterError where no worker is left.
        """

    def close(self) -> None:
        """Ends the workers that this pool has started, and cancels what has not run."""


@contextmanager
def opened_pool(
    cluster: Any, threads: int = 0, note: Note | None = None, modules: Sequence[str] = ()
) -> Iterator[Pool]:
    """Opens a pool for the block: `local:4` for processes, or a cluster of Dask.

    A cluster is the address of its scheduler, or a `distributed.Client`. None runs everything in
    this process. `threads` are those of each worker [default: the processors ÷ the workers, or
    those of a worker of Dask]. `note` is called with sentences for the user. Processes load
    `modules` as they start, while this one still reads the data. Raises UsageError for anything
    else, and where `distributed` is not installed.
    """
    note = note or (lambda text: None)
    with closing(_choose_pool(cluster, threads or None, note, modules)) as pool:
        yield pool


def _choose_pool(cluster: Any, threads: int | None, note: Note, modules: Sequence[str]) -> Pool:
    if cluster is None:
        return SerialPool(threads)
    if isinstance(cluster, str) and (local := _LOCAL.fullmatch(cluster)) and int(local[1]):
        from tracer.scaling.processes import ProcessPool

        return ProcessPool(int(local[1]), threads, note, modules)
    if isinstance(cluster, str) and _ADDRESS.fullmatch(cluster) is None:
        raise UsageError(
            f"'{cluster}' is no cluster",
            "Give local:4 for four processes, the address of a scheduler such as "
            "tcp://host:8786, or a distributed.Client.",
        )
    require("a cluster of Dask", "distributed")
    from tracer.scaling.dask_cluster import DaskPool

    return DaskPool(cluster, threads, note)


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
