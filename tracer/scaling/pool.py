"""A pool runs tasks, in this process or in others: `opened_pool` chooses one.

`run_on_shards` cuts data into shards, some batches that one task runs, and collects the results.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from tracer.containment.activity import Progress, silent
from tracer.errors import UsageError
from tracer.support.imports import require

_LOCAL = re.compile(r"local:([0-9]{1,4})")
_ADDRESS = re.compile(r"[a-z]+://\S+")

_POLL_S = 0.2
"""Seconds after which `check` is called while workers compute."""
_SHARDS = "shards"
"""The purpose of shards in progress."""

SHARD_S = 4.0
"""Seconds that a shard takes at most, about: what the task of a lost worker costs."""
_SHORTEST_S = 0.1
"""Seconds that a shard takes at least, if it has several batches: fifty times what a task costs."""
_DEALT_S = 0.004
"""Seconds for each worker that a shard takes at least: a scheduler deals a task in half of that."""
_FOR_EACH = 4
"""Shards for each worker, where they are not too short: the last ones end at about one time."""

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
    pool: Pool
    if cluster is None:
        pool = SerialPool(threads or None)
    elif isinstance(cluster, str) and (local := _LOCAL.fullmatch(cluster)) and int(local[1]):
        from tracer.scaling.dispatcher import ProcessPool

        pool = ProcessPool(int(local[1]), threads or None, note, modules)
    elif isinstance(cluster, str) and _ADDRESS.fullmatch(cluster) is None:
        raise UsageError(
            f"'{cluster}' is no cluster",
            "Give local:4 for four processes, the address of a scheduler such as "
            "tcp://host:8786, or a distributed.Client.",
        )
    else:
        require("a cluster of Dask", "distributed")
        from tracer.scaling.dask_cluster import DaskPool

        pool = DaskPool(cluster, threads or None, note)
    with closing(pool):
        yield pool


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


@dataclass(frozen=True, slots=True)
class Shard:
    """The `count` batches from number `first` on; None are all of them, however many."""

    first: int = 0
    count: int | None = None

    @property
    def batches(self) -> slice:
        """The place of its batches in a sequence of all of them."""
        return slice(self.first, None if self.count is None else self.first + self.count)


@dataclass(frozen=True, slots=True)
class Timed:
    """What was computed of a shard, and the seconds that it took."""

    result: Any
    seconds: float


def cut_shards(batches: int, size: int) -> tuple[Shard, ...]:
    """Returns shards of `size` batches; the last may be smaller."""
    return tuple(Shard(n, min(size, batches - n)) for n in range(0, batches, size))


def run_on_shards(
    pool: Pool,
    job: Job,
    method: str,
    batches: int | None,
    progress: Progress,
    check: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Returns the results of `method` on shards of the batches, in their order.

    A result tells the `seconds` that it took. Shards are as long as those of the second batch say.
    There is one where tasks run in this process, or `batches` is None: reading the data tells
    their number. `check` may end the work with an exception. Raises the exception of the first
    task that has one.
    """
    key = pool.share(job)
    try:
        shards: tuple[Shard, ...] = (Shard(),)
        if pool.workers and batches is not None:
            is_one = batches == 1  # there is no second batch to time
            size = 1 if is_one else equal_size(pool, key, method, batches, progress)
            shards = cut_shards(batches, size)
        tasks = [Task(key, method, (shard,), home) for home, shard in enumerate(shards)]
        own = progress if pool.workers else silent  # a job in this process tells of batches
        return collect_results([pool.submit(task) for task in tasks], own, check=check)
    finally:
        pool.forget(key)


def equal_size(pool: Pool, job: str, method: str, batches: int, progress: Progress) -> int:
    """Returns how many batches a shard has, so that all workers are busy until the end.

    The `seconds` that the second batch takes tell it. Each worker runs the first batch before: it
    opens the job, and loads or compiles code. A shard takes `SHARD_S` at most. Where a pass over
    the data is shorter than that for all workers, each has four shards of it, unless these were too
    short.
    """
    _first_result(on_each(pool, job, method, Shard(0, 1)))
    again = pool.submit(Task(job, method, (Shard(1, 1),)))
    batch_s = float(collect_results([again], progress)[0].seconds)
    least_s = max(_SHORTEST_S, _DEALT_S * pool.workers)
    shard_s = min(SHARD_S, max(least_s, batches * batch_s / (_FOR_EACH * pool.workers)))
    most = max(int(shard_s / max(batch_s, 1e-9)), 1)
    shards = -(-batches // most)
    if shards > pool.workers:
        shards = min(-(-shards // pool.workers) * pool.workers, batches)
    return -(-batches // shards)


def collect_results(
    futures: "Sequence[Future[Any]]",
    progress: Progress,
    keep: Callable[[int, Any], Any] = lambda index, result: result,
    check: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Returns what `keep` makes of the results of `futures`, in their order.

    `keep` gets the index of a result and the result, as soon as it is there. `check` is called
    while results are missing, and may end the work with an exception. Raises the exception of the
    first task that has one, and cancels the others.
    """
    left = dict(enumerate(futures))
    kept: dict[int, Any] = {}
    count = len(left)
    del futures  # a result that `keep` has folded into others need not stay in memory
    try:
        while left:
            if not all(future.done() for future in left.values()):
                check()
            wait(left.values(), _POLL_S, FIRST_COMPLETED)
            for index in [index for index, future in left.items() if future.done()]:
                kept[index] = keep(index, left.pop(index).result())
            progress(count - len(left), count, _SHARDS)
        return [kept[index] for index in range(count)]
    finally:
        for future in left.values():
            future.cancel()


def first_answer(pool: Pool, job: Job, method: str) -> Any:
    """Calls a method of a job on each worker, and returns the first result.

    The others load meanwhile what they need for further jobs of this kind. Raises the exception of
    the first task that has one.
    """
    key = pool.share(job)
    futures = on_each(pool, key, method)

    def forget(ended: "Future[Any]") -> None:
        if all(future.done() for future in futures):
            pool.forget(key)

    for future in futures:
        future.add_done_callback(forget)
    return _first_result(futures)


def on_each(pool: Pool, job: str, method: str, *arguments: object) -> "list[Future[Any]]":
    """Returns the results of a method, once on each worker, so that all open the job."""
    homes = range(max(pool.workers, 1))
    return [pool.submit(Task(job, method, arguments, home)) for home in homes]


def _first_result(futures: "Sequence[Future[Any]]") -> Any:
    while True:
        done, _ = wait(futures, _POLL_S, FIRST_COMPLETED)  # a signal may arrive in between
        if done:
            return done.pop().result()
