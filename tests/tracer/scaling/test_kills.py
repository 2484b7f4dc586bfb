"""Workers that are killed by a signal, twenty times in one sweep, change no result."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import pytest

from tracer.containment.activity import silent
from tracer.scaling import dask_cluster
from tracer.scaling.pool import Task, collect_results, opened_pool

pytestmark = pytest.mark.nightly

KILLS, TASKS, BETWEEN = 20, 180, 7
"""Results between two kills: tasks that die with a worker have run elsewhere by then."""


@dataclass(frozen=True)
class Squares:
    """A cheap job: what it tells is known without it."""

    def portable(self):
        return self

    def open(self, threads):
        return self

    def square(self, number):
        time.sleep(0.01)  # so that a signal meets the worker within a task
        return os.getpid(), number**2


def squares_despite_kills(pool):
    """The squares, and the processes that were killed meanwhile."""
    killed, since = [], 0
    key = pool.share(Squares())
    futures = [pool.submit(Task(key, "square", (n,), home=n % 8)) for n in range(TASKS)]

    def keep(index, result):
        nonlocal since
        (pid, square), since = result, since + 1
        if since > BETWEEN and pid not in killed and len(killed) < KILLS:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            since = 0
        return square

    return collect_results(futures, silent, keep), killed


def test_processes_that_are_killed_twenty_times():
    with opened_pool("local:2") as pool:
        squares, killed = squares_despite_kills(pool)
    assert squares == [n**2 for n in range(TASKS)]
    assert len({*killed}) == KILLS


@pytest.mark.filterwarnings("ignore")  # of what Dask notices as its workers die
def test_workers_of_dask_that_are_killed_twenty_times(monkeypatch):
    """The nannies of the cluster start others, which join late: minutes, on a loaded machine."""
    monkeypatch.setattr(dask_cluster, "_WORKERLESS_S", 600.0)
    dask = pytest.importorskip("dask", reason="the extra dask is not installed")
    distributed = pytest.importorskip("distributed")
    forked = {"distributed.worker.multiprocessing-method": "forkserver"}  # they start sooner
    with (
        dask.config.set(forked),
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        opened_pool(client) as pool,
    ):
        squares, killed = squares_despite_kills(pool)
    assert squares == [n**2 for n in range(TASKS)]
    assert len({*killed}) == KILLS
