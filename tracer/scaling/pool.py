"""What a pool is: it runs tasks, in this process or in others."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol


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


Note = Callable[[str], None]
"""Called with a sentence for the user: the address of a dashboard, a worker that is not used."""
