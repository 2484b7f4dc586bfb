"""Chooses the pool that a user names."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from tracer.errors import UsageError
from tracer.scaling.pool import Note, Pool
from tracer.scaling.serial import SerialPool
from tracer.support.imports import require

_LOCAL = re.compile(r"local:([0-9]{1,4})")
_ADDRESS = re.compile(r"[a-z]+://\S+")


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
    with closing(_pool(cluster, threads or None, note or (lambda text: None), modules)) as pool:
        yield pool


def _pool(cluster: Any, threads: int | None, note: Note, modules: Sequence[str]) -> Pool:
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
