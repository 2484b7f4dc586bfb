"""How many workers a sweep keeps busy: a simulation of clusters that nobody here has.

    python -m benchmarks.simulated_cluster [--evaluations 1000000000] [--workers 1,10,100,1000]
                                           [--shards 1,4,10] [--plot scaling.png] [--dask]

Simulates tasks, messages and transfers one by one (events in the order of their time), with what
was measured: `MEASURED`. A worker has two tasks at a time, one that runs and one that waits. The
client deals a task when a result arrives, through Dask's scheduler, which handles one message at a
time. The model reaches a worker from one that has it. Prints, for each size of shard and number of
workers, the share of time in which the workers compute. `--dask` measures the time that Dask takes
for each task on this machine, instead.
"""

import argparse
import heapq
import math
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import machine
from tracer.analyzers.views.drawing import HIGH, OTHERS, PLAIN, empty_figure, saved

_DEPTH = 2
"""Tasks that a worker has at a time."""
_WORKERS = (1, 10, 100, 250, 500, 1000, 2000, 4000)
_SHARDS_S = (0.5, 1.0, 4.0, 10.0, 30.0)
_TARGET = 0.7
"""Share of time in which 1,000 workers should compute."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What the parts of a sweep take: seconds, bytes, and bytes per second.

    `node_s` is one node on one image at one width. `spread` is the standard deviation of the time
    of a shard ÷ its mean. `start_s` passes before the first task of a worker that has the model.
    `client_s` and `scheduler_s` are what both do for one task. `link` is what every network card
    transfers; a message takes `latency_s`.
    """

    node_s: float
    spread: float
    start_s: float
    client_s: float
    scheduler_s: float
    latency_s: float
    link: float
    model_bytes: float
    task_bytes: float
    result_bytes: float


MEASURED = Costs(
    node_s=144e-6, spread=0.15, start_s=3.5, client_s=1.5e-3, scheduler_s=2.2e-3,
    latency_s=0.5e-3, link=1.25e9, model_bytes=341e3, task_bytes=4e3, result_bytes=100e3,
)  # fmt: skip
"""ResNet-20 in 8 bits, 18-bit accumulators, one thread of an AMD EPYC (Zen 4) with AVX-512.

512 images at one width took 1.7 s for 23 nodes, with 15 % between widths. A worker starts in 3.5 s:
imports, the model, compiled code and the first run. Dask 2026.8 (`--dask`) took 1.5 ms of the
client and 2.2 ms of the scheduler for a task that is submitted alone. Latency and 10 Gb/s are
assumed.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated sweep: its duration, and the shares of time that workers compute and wait.

    `starting` is the share before the first task of a worker begins, `ending` the share after its
    last one ended, `waiting` what lies in between. `scheduler` is the share of time in which the
    scheduler works.
    """

    seconds: float
    busy: float
    starting: float
    waiting: float
    ending: float
    scheduler: float


class _Server:
    """What handles one message at a time, in the order of arrival."""

    def __init__(self) -> None:
        self.free = 0.0
        self.worked = 0.0

    def handle(self, arrival: float, seconds: float) -> float:
        """Returns when a message that arrives then has been handled."""
        self.free = max(self.free, arrival) + seconds
        self.worked += seconds
        return self.free


class Cluster:
    """The workers, the scheduler and the client of one simulated sweep."""

    def __init__(self, costs: Costs, workers: int, durations: Sequence[float]) -> None:
        self._costs = costs
        self._left = deque(durations)
        self._events: list[tuple[float, int, Callable[[float, int], None], int]] = []
        self._order = 0
        self._scheduler, self._client, self._link = _Server(), _Server(), _Server()
        self._dealt = [deque[float]() for _ in range(workers)]
        self._arrived = [deque[float]() for _ in range(workers)]
        self._running = [False] * workers
        self._began = [math.inf] * workers
        self._ended = [0.0] * workers
        self._busy = [0.0] * workers

    def run(self) -> Outcome:
        """Runs all tasks to the end: until the client has the last result."""
        for _ in range(_DEPTH):
            for worker in range(len(self._busy)):
                self._at(self._costs.start_s + self._model_arrives(worker), self._deal, worker)
        now = 0.0
        while self._events:
            now, _, happens, worker = heapq.heappop(self._events)
            happens(now, worker)
        return self._outcome(now)

    def _model_arrives(self, worker: int) -> float:
        """The copies double with each transfer: a worker that has the model passes it on."""
        transfers = math.ceil(math.log2(worker + 2))
        return transfers * (self._costs.latency_s + self._costs.model_bytes / self._costs.link)

    def _at(self, moment: float, happens: Callable[[float, int], None], worker: int) -> None:
        self._order += 1
        heapq.heappush(self._events, (moment, self._order, happens, worker))

    def _hear(self, now: float, worker: int) -> None:
        """The scheduler hears that a worker has room, and tells the client."""
        told = self._scheduler.handle(now, self._costs.scheduler_s / 2)
        self._at(told + self._costs.latency_s, self._deal, worker)

    def _deal(self, now: float, worker: int) -> None:
        """The client takes the result, if there is one, and deals the next task."""
        done = self._client.handle(now, self._costs.client_s)
        if self._left:
            self._dealt[worker].append(self._left.popleft())
            self._at(done + self._costs.latency_s, self._send, worker)

    def _send(self, now: float, worker: int) -> None:
        """The scheduler sends a task to its worker."""
        costs = self._costs
        sent = self._scheduler.handle(now, costs.scheduler_s / 2)
        self._at(sent + costs.latency_s + costs.task_bytes / costs.link, self._arrive, worker)

    def _arrive(self, now: float, worker: int) -> None:
        self._arrived[worker].append(self._dealt[worker].popleft())
        if not self._running[worker]:
            self._start(now, worker)

    def _start(self, now: float, worker: int) -> None:
        seconds = self._arrived[worker].popleft()
        self._running[worker] = True
        self._began[worker] = min(self._began[worker], now)
        self._busy[worker] += seconds
        self._at(now + seconds, self._end, worker)

    def _end(self, now: float, worker: int) -> None:
        """A task ends; its result goes to the client, through the one card that it has."""
        costs = self._costs
        self._running[worker] = False
        self._ended[worker] = now
        sent = self._link.handle(now, costs.result_bytes / costs.link)
        self._at(sent + costs.latency_s, self._hear, worker)
        if self._arrived[worker]:
            self._start(now, worker)

    def _outcome(self, end: float) -> Outcome:
        whole = len(self._busy) * end
        began = sum(min(each, end) for each in self._began)
        ended = sum(end - each for each in self._ended if each)
        waiting = max(0.0, whole - sum(self._busy) - began - ended)
        parts = (sum(self._busy), began, waiting, ended)
        busy, starting, waiting, ending = (part / whole for part in parts)
        return Outcome(end, busy, starting, waiting, ending, self._scheduler.worked / end)


def sweep(costs: Costs, workers: int, evaluations: float, shard_s: float) -> Outcome:
    """Returns the outcome of a sweep over `evaluations` of a node, in shards of about `shard_s`.

    Times of shards have a log-normal distribution with the spread of `costs`, and a fixed seed.
    """
    total = evaluations * costs.node_s
    count = max(1, round(total / shard_s))
    sigma = math.sqrt(math.log1p(costs.spread**2))
    drawn = np.random.default_rng(0).lognormal(0, sigma, count)
    return Cluster(costs, workers, (drawn * (total / drawn.sum())).tolist()).run()


def main() -> None:
    """Prints the table, and draws the chart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=float, default=1e9)
    parser.add_argument("--workers", type=_numbers, default=_WORKERS)
    parser.add_argument("--shards", type=_numbers, default=_SHARDS_S)
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    parser.add_argument("--dask", action="store_true", help="measure Dask on this machine instead")
    arguments = parser.parse_args()
    if arguments.dask:
        _print_dask()
        return
    print(f"{'shard, s':>9}{'workers':>9}{'busy':>8}{'start':>8}{'wait':>8}{'end':>8}"
          f"{'scheduler':>11}{'hours':>9}")  # fmt: skip
    busy: dict[float, list[float]] = {}
    for shard_s in arguments.shards:
        busy[shard_s] = []
        for workers in map(int, arguments.workers):
            told = sweep(MEASURED, workers, arguments.evaluations, shard_s)
            busy[shard_s].append(told.busy)
            shares = (told.busy, told.starting, told.waiting, told.ending)
            print(f"{shard_s:9g}{workers:9,}" + "".join(f"{each:8.1%}" for each in shares)
                  + f"{told.scheduler:11.1%}{told.seconds / 3600:9.3f}", flush=True)  # fmt: skip
    if arguments.plot:
        arguments.plot.write_bytes(_chart(arguments.workers, busy))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _chart(workers: Sequence[float], busy: Mapping[float, Sequence[float]]) -> bytes:
    """Draws the busy share by the number of workers, a line for each size of shard."""
    chart = empty_figure(6.4, 3.6)
    axes = chart.subplots()
    shades = np.linspace(0.35, 1, len(busy))
    for (shard_s, shares), shade in zip(busy.items(), shades, strict=True):
        percent = [100 * share for share in shares]
        axes.plot(workers, percent, marker="o", ms=3, color=PLAIN, alpha=shade)
        axes.annotate(f" {shard_s:g} s", (workers[-1], percent[-1]), fontsize=8, va="center")
    axes.axhline(100 * _TARGET, color=HIGH, lw=0.8, ls="--")
    axes.axvline(1000, color=OTHERS, lw=0.8)
    axes.set(
        xscale="log", ylim=(0, 103), xlabel="workers of one thread", ylabel="time computing, %",
        title="10⁹ node-evaluations of ResNet-20, by seconds of a shard",
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    return saved(chart, "png")


def _print_dask() -> None:
    """Prints what an empty task takes of client and scheduler, submitted alone and at once."""
    print(machine(), f"· distributed {version('distributed')}")
    with _dask() as (client, scheduler):
        workers = [*client.scheduler_info()["workers"]]
        alone = _task_ms(scheduler, lambda count: _submit(client, workers, count), 2000)
        at_once = _task_ms(scheduler, lambda count: _map(client, count), 10_000)
    for name, (own, of_scheduler) in (("submitted alone", alone), ("mapped at once", at_once)):
        print(f"{name}: client {own:.2f} ms, scheduler {of_scheduler:.2f} ms of processor time")


@contextmanager
def _dask() -> Iterator[tuple[Any, int]]:
    """Starts a scheduler and two workers in processes; gives a client, and the scheduler's id."""
    from distributed import Client

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen([*command, "--host", address], **quiet)]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    processes += [
        subprocess.Popen([*command, "--no-nanny", "--no-dashboard"], **quiet) for _ in range(2)
    ]
    try:
        with Client(address, timeout=30) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, processes[0].pid
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _task_ms(scheduler: int, work: Callable[[int], None], count: int) -> tuple[float, float]:
    """Returns ms of processor time for each task: of this process, and of the scheduler."""
    work(200)
    before = time.process_time(), _process_s(scheduler)
    work(count)
    after = time.process_time(), _process_s(scheduler)
    return 1e3 * (after[0] - before[0]) / count, 1e3 * (after[1] - before[1]) / count


def _process_s(process: int) -> float:
    """Returns the seconds of processor time of a process, of Linux."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _submit(client: Any, workers: Sequence[str], count: int) -> None:
    """Keeps two tasks at each worker, as tracer does, until `count` have ended."""
    from distributed import as_completed

    def submit(number: int, worker: str) -> Any:
        key = f"task-{time.monotonic_ns()}"
        future = client.submit(_nothing, number, workers=[worker], pure=False, key=key)
        places[future.key] = worker
        return future

    places: dict[str, str] = {}
    running = as_completed(submit(number, each) for number in range(_DEPTH) for each in workers)
    for number, future in enumerate(running, _DEPTH * len(workers)):
        future.result()
        if number < count:
            running.add(submit(number, places.pop(future.key)))


def _map(client: Any, count: int) -> None:
    client.gather(client.map(_nothing, range(count), pure=False))


def _nothing(number: int) -> int:
    return number


if __name__ == "__main__":
    main()
