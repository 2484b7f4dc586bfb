"""Shares batches out to workers, and waits for the results of tasks."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from tracer.scaling.pool import Job, Pool, Task
from tracer.scaling.shards import Shard, cut, equal_size
from tracer.support.progress import Progress, silent

_POLL_S = 0.2
"""Seconds after which `check` is called while workers compute."""
_SHARDS = "shards"
"""The purpose of shards in progress."""


def _whole(index: int, result: Any) -> Any:
    return result


def _go_on() -> None:
    """Lets the work go on."""


def collected(
    futures: "Sequence[Future[Any]]",
    progress: Progress,
    keep: Callable[[int, Any], Any] = _whole,
    check: Callable[[], None] = _go_on,
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


def shared_out(
    pool: Pool,
    job: Job,
    method: str,
    batches: int | None,
    progress: Progress,
    check: Callable[[], None] = _go_on,
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
        if pool.workers and batches is not None and batches > 1:
            seconds = seconds_of_a_batch(pool, key, method, progress)
            shards = cut(batches, equal_size(batches, seconds, pool.workers))
        tasks = [Task(key, method, (shard,), home) for home, shard in enumerate(shards)]
        own = progress if pool.workers else silent  # a job in this process tells of batches
        return collected([pool.submit(task) for task in tasks], own, check=check)
    finally:
        pool.forget(key)


def seconds_of_a_batch(pool: Pool, job: str, method: str, progress: Progress) -> float:
    """Returns the `seconds` that the result of a task on the second batch tells.

    Each worker runs the first batch before: it opens the job, and loads or compiles code.
    """
    _first(on_each(pool, job, method, Shard(0, 1)))
    again = pool.submit(Task(job, method, (Shard(1, 1),)))
    return float(collected([again], progress)[0].seconds)


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
    return _first(futures)


def on_each(pool: Pool, job: str, method: str, *arguments: object) -> "list[Future[Any]]":
    """Returns the results of a method, once on each worker, so that all open the job."""
    homes = range(max(pool.workers, 1))
    return [pool.submit(Task(job, method, arguments, home)) for home in homes]


def _first(futures: "Sequence[Future[Any]]") -> Any:
    while True:
        done, _ = wait(futures, _POLL_S, FIRST_COMPLETED)  # a signal may arrive in between
        if done:
            return done.pop().result()
