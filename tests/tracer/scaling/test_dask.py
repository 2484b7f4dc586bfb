"""A Dask cluster gives the result of one process, whatever happens to its workers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.tracer.scaling.conftest import ROOT, asked
from tracer.errors import ClusterError, InputError
from tracer.scaling.pool import Task, opened_pool

distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")


def seconds_until(holds, most=30):
    end = time.monotonic() + most
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


class Watching:
    """Counts the shards that a what-if has collected, and acts once after some of them."""

    def __init__(self, after, action):
        self.after, self.action, self.done = after, action, 0

    def __call__(self, done, total, what):
        if what == "shards":
            self.done += 1
            if self.done == self.after:
                self.action()


@pytest.mark.nightly
def test_a_cluster_changes_nothing(files, alone):
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert asked(files, client) == alone
        assert client.status == "running"  # it is not ours to close


@pytest.mark.nightly
def test_a_cluster_that_adapts_gets_workers_for_what_waits():
    with (
        distributed.LocalCluster(0, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.adapt(minimum=0, maximum=2, interval="100ms", target_duration="1s")
        with opened_pool(client) as pool:  # it waits for the first worker
            key = pool.share(NeedsProcess(None))
            tasks = [pool.submit(Task(key, "nap", (), home)) for home in range(60)]
            seconds_until(lambda: pool.workers == 2)
            assert len({task.result(60) for task in tasks}) == 2


@pytest.mark.nightly
def test_a_killed_worker_costs_time_alone(files, alone, dask, small_shards):
    victim, _ = dask.worker(), dask.worker()
    watching = Watching(12, lambda: os.kill(victim.pid, signal.SIGKILL))
    assert asked(files, dask.address, progress=watching) == alone
    assert victim.wait(10) == -signal.SIGKILL


@pytest.mark.nightly
def test_a_cluster_may_lose_all_its_workers_and_get_others(files, alone, dask, small_shards):
    """The job is sent again: nobody has a copy."""
    victims = [dask.worker(), dask.worker()]

    def replace():
        for victim in victims:
            victim.kill()
        dask.worker()

    assert asked(files, dask.address, progress=Watching(12, replace)) == alone


def opened_jobs():
    from tracer.scaling import dispatcher

    return len(dispatcher._opened)


@pytest.mark.nightly
def test_a_worker_that_joins_late_takes_part(files, alone, dask, small_shards):
    dask.worker()

    def join():
        with distributed.Client(dask.address) as client:
            dask.worker()
            client.wait_for_workers(2)
        time.sleep(1.5)  # until the pool has looked

    assert asked(files, dask.address, progress=Watching(5, join)) == alone
    with distributed.Client(dask.address) as client:
        opened = client.run(opened_jobs)
    assert len(opened) == 2
    assert all(opened.values())


@pytest.mark.nightly
def test_a_scheduler_that_vanishes_ends_the_run_and_the_shards_are_kept(
    tmp_path, files, alone, dask, small_shards, monkeypatch
):
    from tracer.scaling import dask_cluster

    monkeypatch.setattr(dask_cluster, "_GONE_S", 0.5)
    dask.worker()
    trace = tmp_path / "w.trace"
    watching = Watching(20, dask.scheduler.kill)
    with pytest.raises(
        ClusterError, match=r"does not answer any more.*w\.trace keeps the"
    ) as error:
        asked(files, dask.address, trace=trace, progress=watching)
    assert error.value.exit_code == 6
    assert trace.with_name("w.trace.shards").exists()
    assert asked(files, "local:2", trace=trace) == alone


def test_the_command_tells_where_no_scheduler_answers(files):
    model, widths, data = files
    command = [
        sys.executable, "-m", "tracer", "whatif", model, "--accumulator", widths, "--data", data,
        "--scheduler", "tcp://127.0.0.1:9",
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 6
    assert ended.stderr.startswith("tracer: error: tcp://127.0.0.1:9: no scheduler of Dask answers")


@pytest.mark.nightly
def test_a_worker_with_other_code_is_not_used(tmp_path, files, alone, dask, small_shards):
    other = tmp_path / "other"
    for package in ("tracer", "analyzers", "exporters"):
        ignored = shutil.ignore_patterns("__pyc*")
        shutil.copytree(ROOT / package, other / package, symlinks=True, ignore=ignored)
    with (other / "tracer" / "errors.py").open("a") as file:
        file.write("# changed\n")
    bad = dask.worker(other)
    notes = []
    with distributed.Client(dask.address) as client:
        client.wait_for_workers(1)
        with pytest.raises(ClusterError, match="0 of 1 worker can be used"):
            asked(files, client, note=notes.append)
        assert any("is not used: it has tracer" in note for note in notes)
        dask.worker()
        client.wait_for_workers(2)
        notes.clear()
        assert asked(files, client, note=notes.append) == alone
        assert sum("is not used" in note for note in notes) == 1
        assert bad.poll() is None


@pytest.mark.nightly
def test_a_worker_without_the_data_is_not_used(dask):
    """Workers of other machines may lack the files; here one of two lacks what the job needs."""
    dask.worker()
    able = dask.worker()
    notes = []
    with distributed.Client(dask.address) as client:
        client.wait_for_workers(2)
    with opened_pool(dask.address, note=notes.append) as pool:
        seconds_until(lambda: pool.workers == 2)
        key = pool.share(NeedsProcess(able.pid))
        results = [pool.submit(Task(key, "process", (), home)) for home in range(6)]
        assert [result.result(30) for result in results] == [able.pid] * 6
    assert sum("the data are not here" in note for note in notes) == 1


class NeedsProcess:
    """A job that opens in one process alone, or in any."""

    def __init__(self, pid):
        self.pid = pid

    def portable(self):
        return self

    def open(self, threads):
        if self.pid not in (None, os.getpid()):
            raise InputError("the data are not here", "Copy them.")
        return self

    def process(self):
        return os.getpid()

    def nap(self):
        time.sleep(0.2)
        return os.getpid()
