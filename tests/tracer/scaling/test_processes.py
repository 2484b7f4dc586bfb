"""Processes on this machine give the result of one process, whatever happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.examples import at_night
from tests.tracer.scaling.conftest import OPTIONS, ROOT, asked, rendered
from tests.tracer.whatif import networks
from tracer.api.whatif import what_if
from tracer.errors import UsageError
from tracer.scaling.pool import Task, opened_pool


def children(of):
    """The processes that `of` has started and that are alive."""
    text = subprocess.run(
        ["ps", "--ppid", str(of), "-o", "pid=,stat="], capture_output=True, text=True
    ).stdout
    rows = [line.split() for line in text.splitlines()]
    return [int(pid) for pid, state in rows if not state.startswith("Z")]


@pytest.mark.parametrize("workers", at_night([1, 4], but=[4]))
def test_workers_change_nothing(files, alone, workers):
    assert asked(files, f"local:{workers}") == alone


@pytest.mark.nightly
def test_shards_of_any_size_change_nothing(files, alone, small_shards):
    assert asked(files, "local:2") == alone


@pytest.mark.nightly
def test_outputs_in_wide_accumulators_are_known_to_workers_that_did_not_measure(
    tmp_path, files, small_shards
):
    """Without labels the score compares with them, so workers compute them anew."""
    data = networks.data(tmp_path / "d.npz", samples=41, labels=False)
    unlabelled = (*files[:2], data)
    assert asked(unlabelled, "local:2") == asked(unlabelled)


def test_a_worker_that_is_killed_costs_time_alone(files, alone, small_shards):
    killed = []

    def progress(done, total, what):
        if what == "shards" and not killed and done == total // 2:
            killed.append(children(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    assert asked(files, "local:2", progress=progress) == alone
    assert killed


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_is_ended_takes_its_workers_with_it_and_goes_on_later(
    tmp_path, files, alone, number
):
    trace = tmp_path / "w.trace"
    model, widths, data = files
    command = subprocess.Popen(
        [
            sys.executable, "-c",
            "from tracer.scaling import pool; pool.SHARD_S = 0.0\n"
            "from tracer.__main__ import main; main()",
            "whatif", model, "--accumulator", widths, "--data", data, "--batch", "8",
            "--budget", "10", "--workers", "2", "-o", trace,
        ],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    kept = trace.with_name("w.trace.shards")
    while not kept.exists() or kept.stat().st_size < 40_000:
        assert command.poll() is None, command.stderr.read()
        time.sleep(0.02)
    (child,) = children(command.pid)
    workers = children(child)
    assert workers
    os.kill(command.pid, number)
    command.wait(20)
    command.stderr.close()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in (child, *workers)):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert asked(files, "local:2", trace=trace) == alone
    assert not kept.exists()


@pytest.mark.nightly
def test_what_is_kept_is_not_computed_again(tmp_path, files, alone, monkeypatch, small_shards):
    from tracer.scaling.dispatcher import ProcessPool

    submitted = []
    real = ProcessPool.submit

    class EndError(Exception):
        pass

    def some(self, task):
        if len(submitted) == 20:
            raise EndError
        submitted.append(task)
        return real(self, task)

    trace = tmp_path / "w.trace"
    with monkeypatch.context() as patch, pytest.raises(EndError):
        patch.setattr(ProcessPool, "submit", some)
        asked(files, "local:2", trace=trace)
    again = []

    def counted(self, task):
        again.append(task)
        return real(self, task)

    monkeypatch.setattr(ProcessPool, "submit", counted)
    assert asked(files, "local:2", trace=trace) == alone
    wide = [task for task in submitted if task.method == "measure"]
    assert len(wide) == 3 + 12  # three make the workers ready, and show how long a batch takes
    assert not [task for task in again if task.method == "measure" and task.job == wide[0].job]


def test_errors_are_those_of_one_process(files):
    model, _, data = files
    options = replace(OPTIONS, metric="top5", limit=40)
    for cluster in (None, "local:2"):
        with pytest.raises(UsageError, match="matches no"):
            what_if(model, "nothing=12", data, options, cluster=cluster, in_process=True)


@pytest.mark.nightly
def test_a_call_from_python_starts_its_workers_in_the_child_process(files, alone, monkeypatch):
    from tracer.containment import supervisor

    monkeypatch.setattr(supervisor, "in_process", lambda: False)
    assert rendered(what_if(*files, OPTIONS, cluster="local:2")) == alone


class Failing:
    """A job that opens, and then kills its worker, or raises."""

    def portable(self):
        return self

    def open(self, threads):
        return self

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def threads(self):
        import threadpoolctl

        return os.environ["NUMBA_NUM_THREADS"], [
            each["num_threads"] for each in threadpoolctl.threadpool_info()
        ]


@pytest.mark.parametrize("text", ["local:0", "local:-1", "remote", "2"])
def test_a_cluster_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="is no cluster"), opened_pool(text):
        pass


@pytest.mark.nightly
def test_a_task_that_kills_every_worker_ends():
    from tracer.errors import CrashError

    with opened_pool("local:2") as pool:
        task = Task(pool.share(Failing()), "die", ())
        with pytest.raises(CrashError, match="SIGKILL"):
            pool.submit(task).result(60)


@pytest.mark.nightly
def test_workers_share_the_processors():
    with opened_pool("local:2", threads=1) as pool:
        numba, blas = pool.submit(Task(pool.share(Failing()), "threads", ())).result(60)
    assert numba == "1"
    assert {*blas} == {1}
