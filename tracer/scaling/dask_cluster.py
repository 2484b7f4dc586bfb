"""Runs tasks on the workers of a Dask cluster, whoever started it.

This process deals the tasks itself, two for each worker at a time, so that what waits can be
cancelled here, and a worker is not used before it has told that it runs the same code.
"""

import contextlib
import hashlib
import logging
import pickle
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from threading import Event, Thread
from typing import Any

import distributed

from tracer.errors import ClusterError
from tracer.scaling.dispatcher import PACKAGE, Dispatcher, Done, LostError, run, version
from tracer.scaling.pool import Job, Note, Task
from tracer.text import plural

_LOOK_S = 0.5
"""Seconds between two looks at who is there."""
_CONNECT_S = 5.0
"""Seconds that a scheduler may take to answer."""
_GONE_S = 5.0
"""Seconds without a scheduler after which it is given up: it may be restarting its connection."""
_WANTED = 16
"""Waiting tasks that the scheduler is shown for each worker, and for one more."""
_NOWHERE = {"tracer-nowhere": 1}
"""What a task needs so that no worker of Dask takes it."""
_WORKERLESS_S = 60.0
"""Seconds that a cluster may have no worker: a job of Slurm or a pod may still be starting."""


class DaskPool:
    """Runs tasks on the workers of `cluster`: the address of a scheduler, or a client of it.

    Each worker uses `threads` (None: those that it was given). Raises ClusterError where no
    scheduler answers, or no worker can be used.
    """

    def __init__(self, cluster: Any, threads: int | None, note: Note) -> None:
        self._owns_client = isinstance(cluster, str)
        self._client = _connected(cluster) if self._owns_client else cluster
        self._threads = threads
        self._note = note
        self._data: dict[str, bytes] = {}
        self._sent: dict[str, Any] = {}
        self._dispatcher = Dispatcher(note)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="tasks")
        as_completed: Any = distributed.as_completed  # it has no types
        self._completed = as_completed(
            loop=self._client.loop, with_results=True, raise_errors=False
        )
        self._ends: dict[str, tuple[_DaskWorker, Done]] = {}
        self._sent_any = Event()
        self._wanted: list[Any] = []
        self._receiver = Thread(target=self._receive, name="results", daemon=True)
        self._seats: dict[str, _DaskWorker] = {}
        self._refused: dict[str, str] = {}
        self._closing = Event()
        self._ready = Event()
        self._watcher = Thread(target=self._watch, name="cluster", daemon=True)
        if self._client.dashboard_link:
            note(f"Dask's dashboard: {self._client.dashboard_link}")
        self._receiver.start()
        self._watcher.start()
        try:
            while not self._ready.wait(_LOOK_S):  # a signal may arrive in between
                pass
            self._dispatcher.check()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """The number of workers that can be used now."""
        return max(len(self._seats), 1)

    def share(self, job: Job) -> str:
        """Pickles the job; it is sent with the first task, and workers get it from each other."""
        data = pickle.dumps(job.portable(), pickle.HIGHEST_PROTOCOL)
        key = hashlib.sha256(data).hexdigest()
        self._data[key] = data
        return key

    def forget(self, job: str) -> None:
        """Frees the copies of a job."""
        self._dispatcher.forget(job)
        self._data.pop(job, None)
        self._sent.pop(job, None)

    def submit(self, task: Task) -> Future[Any]:
        """Returns the future result of a task."""
        return self._dispatcher.submit(task)

    def close(self) -> None:
        """Cancels what has not run, and leaves the cluster as it is."""
        self._closing.set()
        self._dispatcher.end(ClusterError("the pool of workers was closed"))
        for seat in self._seats.values():
            seat.cancel()
        self._sent.clear()
        self._watcher.join(_CONNECT_S)
        self._completed.clear()
        self._sent_any.set()
        self._receiver.join(_CONNECT_S)
        self._sender.shutdown(wait=False)
        self._wanted.clear()
        if self._owns_client:
            self._client.close(timeout=1)

    def send(self, seat: "_DaskWorker", task: Task, done: Done) -> None:
        """Sends a task to a worker, in a thread that may wait for the scheduler."""
        with contextlib.suppress(RuntimeError):  # the thread has been asked to end
            self._sender.submit(self._send, seat, task, done)

    def _send(self, seat: "_DaskWorker", task: Task, done: Done) -> None:
        if seat.is_gone:
            return  # the dispatcher has dealt the task again
        try:
            sent = self._sent.get(task.job)
            # again where all that had it are gone
            if sent is None or sent.status in ("cancelled", "lost", "error"):
                data = self._data[task.job]
                sent = self._sent[task.job] = self._client.scatter(data, direct=False, hash=False)
            future = self._client.submit(
                run,
                task,
                self._threads or seat.threads,
                sent,
                workers=[seat.name],
                allow_other_workers=False,
                pure=False,
                key=f"tracer-{task.method}-{time.monotonic_ns()}",
            )
        except (OSError, TimeoutError, ValueError, KeyError, RuntimeError):
            time.sleep(_LOOK_S)  # somebody has just died; the pool will look who it is
            self.send(seat, task, done)
            return
        seat.futures.add(future)
        self._ends[future.key] = seat, done
        self._completed.add(future)
        self._sent_any.set()

    def _receive(self) -> None:
        """Hands results on as they arrive, until the pool is closed."""
        while not self._closing.is_set():
            self._sent_any.wait()
            self._sent_any.clear()
            for batch in self._completed.batches():
                for future, result in batch:
                    seat, done = self._ends.pop(future.key)
                    seat.futures.discard(future)
                    if future.status == "error":
                        error = result[1]
                        is_lost = isinstance(error, distributed.scheduler.KilledWorker)
                        done(None, LostError(str(error)) if is_lost else error)
                    elif future.status == "finished" and not isinstance(
                        result, distributed.CancelledError
                    ):
                        done(result, None)
                    elif self._client.status == "running":
                        done(None, LostError("the worker was lost"))

    def _watch(self) -> None:
        """Follows who joins and leaves, until the pool is closed or the cluster is gone."""
        last_seen = last_worker = time.monotonic()
        while not self._closing.is_set():
            found: Mapping[str, Any] | None = None  # the workers by address, if a scheduler answers
            if self._client.status == "running":
                with contextlib.suppress(OSError, TimeoutError, RuntimeError, ValueError):
                    found = self._client.scheduler_info()["workers"]
            now = time.monotonic()
            if found is not None:
                last_seen = now
                self._update(found)
                self._show_demand()
            last_worker = now if self._seats else last_worker
            error = self._trouble(found, now - last_seen, now - last_worker)
            if error is not None:
                self._dispatcher.end(error)
            if error is not None or self._seats:
                self._ready.set()
            if error is not None:
                return
            self._closing.wait(_LOOK_S)

    def _show_demand(self) -> None:
        """Lets the scheduler see that tasks wait here, so that an adaptive cluster grows.

        It sees tasks in their place that never run.
        """
        most = _WANTED * (len(self._seats) + 1)
        count = min(self._dispatcher.waiting, most) if self._seats else 1
        del self._wanted[count:]
        missing = range(count - len(self._wanted))
        if missing:
            begun = time.monotonic_ns()
            keys = [f"tracer-waiting-{begun}-{number}" for number in missing]
            with contextlib.suppress(OSError, TimeoutError, ValueError, RuntimeError):
                self._wanted += self._client.map(abs, missing, key=keys, resources=_NOWHERE)

    def _trouble(
        self, found: Mapping[str, Any] | None, unseen_s: float, workerless_s: float
    ) -> ClusterError | None:
        address = self._client.scheduler.address if self._client.scheduler else "the cluster"
        if unseen_s > _GONE_S or self._client.status == "closed":
            return ClusterError(
                f"{address}: the scheduler does not answer any more", "Start the cluster again."
            )
        if found is None or self._seats:
            return None
        if found and all(each in self._refused for each in found):
            reason = next(iter(self._refused.values()))
            return ClusterError(
                f"{address}: 0 of {plural(len(found), 'worker')} can be used: {reason}",
                "Install the same tracer there.",
            )
        if workerless_s > _WORKERLESS_S:
            return ClusterError(
                f"{address}: the cluster has had no worker for {_WORKERLESS_S:.0f} s",
                "Start some: dask worker ADDRESS.",
            )
        return None

    def _update(self, found: Mapping[str, Any]) -> None:
        """Uses new workers that have the same code, and deals the tasks of lost ones again."""
        used = {*self._dispatcher.seats}
        for address, seat in [*self._seats.items()]:
            if address not in found or seat not in used:
                del self._seats[address]
                self._dispatcher.remove(seat)
                seat.cancel()
        new = [each for each in found if each not in self._seats and each not in self._refused]
        for address, told in self._versions(new).items():
            if told != version():
                reason = f"it has tracer {told}, and this process {version()}"
                self._refused[address] = reason
                self._note(f"worker {address} is not used: {reason}")
                continue
            seat = self._seats[address] = _DaskWorker(address, found[address]["nthreads"], self)
            self._dispatcher.add(seat)

    def _versions(self, addresses: Sequence[str]) -> dict[str, str]:
        """What each worker says of its code; a function of Python itself tells if it has any."""
        if not addresses:
            return {}
        told = self._asked(addresses, metadata.version, PACKAGE)
        having = [each for each, answer in told.items() if not isinstance(answer, Exception)]
        # one that does not answer in time is asked again at the next look
        lacking = {each: answer for each, answer in told.items() if each not in having}
        answers = lacking | (self._asked(having, version) if having else {})
        for address, answer in answers.items():
            if isinstance(answer, metadata.PackageNotFoundError):
                answers[address] = "not installed"
            elif isinstance(answer, Exception):
                answers[address] = f"that fails ({answer})"
        return answers

    def _asked(self, addresses: Sequence[str], function: Any, *arguments: Any) -> dict[str, Any]:
        """What a function returns or raises on each worker; those that leave are left out."""
        try:
            told: dict[str, Any] = self._client.run(
                function, *arguments, workers=list(addresses), on_error="return"
            )
        except (OSError, TimeoutError, ValueError):
            return {}
        return {each: value for each, value in told.items() if not isinstance(value, OSError)}


@dataclass(eq=False)
class _DaskWorker:
    """A worker of the cluster, and Dask's futures of what was sent to it."""

    name: str
    threads: int
    pool: DaskPool
    futures: set[Any] = field(default_factory=set)
    is_gone: bool = False
    depth = 2

    def start(self, task: Task, done: Done) -> None:
        """Sends a task."""
        self.pool.send(self, task, done)

    def cancel(self) -> None:
        """Cancels what was sent and does not run yet; what runs ends unheard."""
        self.is_gone = True
        for future in [*self.futures]:
            future.release()
        self.futures.clear()


def _connected(address: str) -> Any:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are told once, by us
    try:
        client: Any = distributed.Client  # it has no types
        return client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"{address}: no scheduler of Dask answers ({type(error).__name__})",
            "Give the address that dask scheduler prints, such as tcp://host:8786.",
        ) from error
