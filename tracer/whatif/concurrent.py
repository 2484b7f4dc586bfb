"""Items worked at side by side, their results taken in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """`work` of every item, in the order of the items, of which `workers` are worked at at a time.

    Items are drawn as they are needed, in this thread. What an item raises is raised in its turn;
    then, or if nobody wants more, those that are under way are waited for.
    """
    if workers < 2:
        yield from map(work, items)
        return
    begun: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="tracer") as pool:
        try:
            for item in items:
                begun.append(pool.submit(work, item))
                if len(begun) > workers:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
