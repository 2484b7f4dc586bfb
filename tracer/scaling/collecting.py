"""Shares batches out to workers, and waits for the results of tasks."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from tracer.scaling.pool import Job, Pool, Task
from tracer.scaling.shards import Shard, cut, equal_size
from tracer.support.progress import Progress

_POLL_S = 0.2
"""Seconds after which `check` is called while workers compute."""
_SHARDS = "shards"
"""The purpose of shards in progress."""


def _nothing(*arguments: object) -> None:
    """Keeps nothing, and lets the work go on."""


def collected(
    futures: "Sequence[Future[Any]]",
    progress: Progress,
    keep: Callable[[int, Any], None] = _nothing,
    check: Callable[[], None] = _nothing,
) -> list[Any]:
    """Returns the results of `futures`; `keep` gets each as soon as it is there, with its index.

    `check` is called while results are missing, and may end the work with an exception. Raises the
    exception of the first task that has one, and cancels the others.
    """
    left = dict(enumerate(futures))
    try:
        while left:
            if not all(future.done() for future in left.values()):
                check()
            wait(left.values(), _POLL_S, FIRST_COMPLETED)
            for index in [index for index, future in left.items() if future.done()]:
                keep(index, left.pop(index).result())
            progress(len(futures) - len(left), len(futures), _SHARDS)
        return [future.result() for future in futures]
    finally:
        for future in left.values():
            future.cancel()


def shared_out(pool: Pool, job: Job, method: str, batches: int, progress: Progress) -> list[Any]:
    """Returns the results of `method` on shards of the batches, in their order.

    A result tells the `seconds` that it took. Shards are as long as those of the second batch say.
    Raises the exception of the first task that has one.
    """
    key = pool.share(job)
    try:
        seconds = seconds_of_a_batch(pool, key, method, progress) if batches > 1 else 0.0
        shards = cut(batches, equal_size(batches, seconds, pool.workers))
        tasks = [Task(key, method, (shard,), home) for home, shard in enumerate(shards)]
        return collected([pool.submit(task) for task in tasks], progress)
    finally:
        pool.forget(key)


def seconds_of_a_batch(pool: Pool, job: str, method: str, progress: Progress) -> float:
    """Returns the `seconds` that the result of a task on the second batch tells.

    The first batch may wait for code to be compiled.
    """
    tasks = [Task(job, method, (Shard(number, 1),)) for number in range(2)]
    _, second = (collected([pool.submit(task)], progress)[0] for task in tasks)
    return float(second.seconds)
