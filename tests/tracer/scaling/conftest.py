"""A network with its answer in one process, and real clusters to ask it of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tracer.whatif import networks
from tracer.analyzers.views import render
from tracer.api.whatif import what_if
from tracer.scaling import pool
from tracer.whatif.options import WhatIfOptions

WIDTHS = "8:14"
OPTIONS = WhatIfOptions(batch=8, accuracy_budget=10)
ROOT = Path(__file__).parents[3]


def rendered(result):
    return render(result, "json")


def asked(files, cluster=None, **named):
    """The result of a what-if in this process, as JSON."""
    return rendered(what_if(*files, OPTIONS, cluster=cluster, in_process=True, **named))


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Model, widths and data: 12 batches."""
    folder = tmp_path_factory.mktemp("network")
    return (
        networks.model(folder / "m.onnx"), WIDTHS, networks.data(folder / "d.npz", samples=90),
    )  # fmt: skip


@pytest.fixture(scope="session")
def alone(files):
    """What one process answers."""
    return asked(files)


@pytest.fixture
def small_shards(monkeypatch):
    """Each shard is one batch."""
    monkeypatch.setattr(pool, "SHARD_S", 0.0)


def started(*arguments, code=ROOT):
    """A process of Dask that runs the code in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
        cwd=code,
        env=os.environ | {"PYTHONPATH": str(code)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def dask(tmp_path):
    """Starts a scheduler, and workers by `dask.worker()`; ends all of them."""
    pytest.importorskip("distributed")
    cluster = DaskCluster(tmp_path)
    yield cluster
    cluster.end()


class DaskCluster:
    def __init__(self, folder):
        self.folder = folder
        self.workers = []
        self.file = folder / "scheduler.json"
        self.scheduler = started(
            "dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file),
            "--host", "127.0.0.1",
        )  # fmt: skip
        while not (self.file.exists() and self.file.read_text().rstrip().endswith("}")):
            assert self.scheduler.poll() is None, self.scheduler.stderr.read()
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def worker(self, code=ROOT):
        process = started(
            "dask_worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
            "--local-directory", str(self.folder), code=code,
        )  # fmt: skip
        self.workers.append(process)
        return process

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
            process.stderr.close()
