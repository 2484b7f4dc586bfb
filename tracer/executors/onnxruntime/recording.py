"""Records profiled runs of a model, alternating with undisturbed runs.

The profiler drops events beyond a million without a warning. So runs are recorded in chunks, each
in its own session, whose profile is read, checked and deleted before the next session opens.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tracer.containment import activity, signals
from tracer.errors import LimitError
from tracer.executors.onnxruntime import (
    calibration,
    chunk_plan,
    compiled_subgraphs,
    device_notes,
    feeding,
    kernel_nodes,
    node_names,
    outputs_returned,
    profile_events,
    self_times,
    sessions,
)
from tracer.executors.onnxruntime.plain_session import PlainSession
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.executors.precision import spread, use_of
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.records import providers
from tracer.records.disturbance import MachineUse, counted_runs
from tracer.records.trace import Kernel, Run
from tracer.support.progress import Progress, silent
from tracer.support.timing import SPINNING_S, Moment, RunTimer, elapsed_us
from tracer.support.types import FloatArray, type_text

EXECUTOR = "onnxruntime"
_TICK_US = 1.0
"""The profiler truncates every duration to whole µs."""

_BUSY_SPREAD = 3.0
"""Where other programs compute, so much is missing that all the time is used: few runs count."""

_Inference = Callable[[], object]


def record_once(
    model: Model, feedset: FeedSet, settings: OrtSettings, saved: Path
) -> tuple[Kernel, ...]:
    """Returns the kernels of one run in the order they ran; saves the graph at `saved`.

    A dimension that differs between the calls of a kernel is None.
    """
    factory = sessions.Factory(model, node_names.serialize(model), settings)
    recording = Recording(factory, feedset, saved)
    recording.labels.every_shape = True
    recording.add_profiled(0, 1)
    return recording.kernels()[0]


@dataclass
class Recording:
    """The runs so far of one model on one set of feeds; the first session saves its graph.

    `run_s` is the time of one run, in seconds, if known.
    """

    factory: sessions.Factory
    feedset: FeedSet
    saved: Path
    progress: Progress = silent
    plain: PlainSession | None = None
    empty: _Inference | None = None
    run_s: float = 0.0
    total: int = 0
    bias: calibration.Bias = calibration.NONE
    returning: outputs_returned.Comparison | None = None
    wall: RunTimer = field(default_factory=RunTimer)
    profiled: RunTimer = field(default_factory=RunTimer)
    empty_us: list[float] = field(default_factory=list)
    began: Moment = field(default_factory=Moment.now)
    tables: list[self_times.RunTable] = field(default_factory=list)
    labels: profile_events.Labels = field(default_factory=profile_events.Labels)
    nodes: kernel_nodes.SavedNodes | None = None
    parts: Sequence[compiled_subgraphs.Part] = ()
    events_per_run: int = 0

    @property
    def state(self) -> chunk_plan.Done:
        """Returns the runs so far, whose precision is left open."""
        return chunk_plan.Done(
            runs=sum(len(table.dur) for table in self.tables),
            seconds=sum(self.profiled.us) / 1e6,
            events=self.events_per_run or len(self.factory.model.nodes) + 2,
            expected_s=self.run_s,
        )

    def measured(self) -> chunk_plan.Done:
        """Returns what the plan of the next chunk depends on."""
        return replace(self.state, spread=self._spread())

    def _spread(self) -> float:
        """Returns the uncertainty of the slowest kernels ÷ what it may be; 0 before any run."""
        if not self.tables or not self.wall.us:
            return 0.0
        kernels, order = self.kernels()
        samples = self._joined([table.self_us for table in self.tables])[:, order]
        bias = self._bias(kernels, self._bodies(order)) * [kernel.calls for kernel in kernels]
        counted = counted_runs(np.array(self.wall.us), self._durations(), samples, self._use())
        uncertain = spread(self.factory.settings, samples[counted.profiled], bias, _TICK_US)
        return max(uncertain, _BUSY_SPREAD) if uncertain and counted.is_busy else uncertain

    def add_profiled(self, warmup: int, count: int) -> None:
        """Records `count` runs in a new session, and checks that no event is missing.

        Undisturbed runs come before, after and in between, so that drift affects both kinds of
        runs alike. The `warmup` profiled runs after each turn of undisturbed runs are dropped.
        Sessions that do not fit side by side take turns once: opening one takes seconds.
        """
        turn = chunk_plan.undisturbed(count)[1]
        if self.plain is not None and self.plain.gives_way:
            self._add_plain(turn, max(1, warmup))
            self.plain.close()
            fewer = self._add_session(warmup, [count], 0)
            self._add_plain(turn, max(1, warmup))
        else:
            fewer = self._add_session(warmup, chunk_plan.parts(count), turn)
        if fewer:
            self.add_profiled(0, fewer)

    def _add_session(self, warmup: int, parts: Sequence[int], turn: int) -> int:
        """Records `parts` in a new session, with `turn` undisturbed runs around each.

        Returns 0, or how many runs to make in another session instead: some made more events than
        before, and the profiler lost events.
        """
        session = self._open()
        run = feeding.prepared(self.factory, session, self.feedset.feeds)
        done = self.state.runs
        counted: list[bool] = []
        timer = RunTimer()
        self._let_threads_sleep()
        self._add_plain(turn, warmup)
        try:
            for part in parts:
                self._let_threads_sleep()
                for index in range(warmup + part):
                    timer.time(run)
                    counted.append(index >= warmup)
                    self.progress(done + sum(counted), self.total, "profiling")
                self._let_threads_sleep()
                self._add_plain(turn, warmup)
        except signals.ENDINGS:
            if signals.ending() and any(counted):
                self._keep(self._read(session), counted, timer)
            raise
        with signals.noted():
            table = self._read(session)
            if len(table.dur) >= len(counted) or signals.ending():
                self._keep(table, counted, timer)
                return 0
        if len(counted) == 1:
            raise LimitError(
                f"{self.factory.model.name}: one inference makes more than the 1,000,000 events "
                "that onnxruntime's profiler holds",
                "Profile fewer loop iterations.",
            )
        return max(1, len(table.dur) // 2)

    def _keep(self, table: self_times.RunTable, counted: Sequence[bool], timer: RunTimer) -> None:
        """Adds the runs that are `counted`; a run that was broken off may be missing or follow."""
        rows = np.flatnonzero(counted[: min(len(table.dur), len(timer.us))])
        self.tables.append(table.take(rows))
        self.profiled.add(timer, rows.tolist())
        activity.keep(bool(self.state.runs))

    def _read(self, session: Any) -> self_times.RunTable:
        """Reads and deletes the profile of a session."""
        path = Path(session.end_profiling())
        events = profile_events.read(path, self.labels)
        path.unlink()
        table = self_times.tabulate(events, len(self.labels.kernels))
        self.events_per_run = max(1, len(events) // max(1, len(table.dur)))
        return table

    def _let_threads_sleep(self) -> None:
        """Waits until threads of one session stop spinning, as they slow the other session."""
        if self.plain is not None and self.factory.settings.threads != 1:
            time.sleep(SPINNING_S)

    def _add_plain(self, count: int, warmup: int) -> None:
        """Times `count` runs without the profiler, and after each of them an empty run.

        So an empty run starts with the caches as a run leaves them, as the next run does. The
        `warmup` runs before, in which threads wake up, are not counted.
        """
        if self.plain is None or not count:
            return
        for _ in range(warmup):
            self.plain.run()
            activity.step()
        for _ in range(count):
            self.wall.time(self.plain.run)
            activity.step()
            if self.empty is not None:
                self.empty_us.append(elapsed_us(self.empty))
        if self.returning is not None:
            self.returning.take_turn()

    def _open(self) -> Any:
        """Opens a profiled session; the first session also saves the graph it runs."""
        prefix = self.saved.with_name("profile")
        if self.nodes is not None:
            return self.factory.open(profile=prefix)
        session, self.nodes = self._open_and_save(prefix)
        self.labels.repeated = self.nodes.repeated
        return session

    def _open_and_save(self, prefix: Path) -> tuple[Any, kernel_nodes.SavedNodes]:
        """Opens a profiled session; of a provider that compiles, the CPU saves what it divides."""
        if not providers.known(self.factory.settings.provider).compiles:
            with suppress(sessions.CompiledError):  # raised if this version compiles after all
                session = self.factory.open(profile=prefix, optimized=self.saved)
                return session, kernel_nodes.SavedNodes.read(self.saved)
        self.factory.save_on_cpu(self.saved)
        session = self.factory.open(profile=prefix)
        self.parts = compiled_subgraphs.recorded(session)
        if self.parts and all(providers.is_cpu(part.provider) for part in self.parts):
            self.factory.save_on_cpu(self.saved, divided=False)  # it took nothing
        return session, kernel_nodes.SavedNodes.read(self.saved, elsewhere=True)

    def kernels(self) -> tuple[tuple[Kernel, ...], list[int]]:
        """Returns the kernels in the order in which they first ran, and the label of each."""
        assert self.nodes is not None
        nodes = self._with_later_nodes(self.nodes)
        calls = self._joined([table.calls for table in self.tables]).mean(axis=0)
        labels = self.labels.kernels
        kernels = kernel_nodes.kernels(
            self.factory.model, nodes, labels, calls.tolist(), self.parts
        )
        on_device = [table.device_us for table in self.tables if table.device_us is not None]
        if on_device:
            kernels = kernel_nodes.timed_on_device(kernels, self._joined(on_device).mean(axis=0))
        order = sorted(range(len(labels)), key=lambda i: labels[i].first_us)
        return tuple(kernels[i] for i in order), order

    def _with_later_nodes(self, nodes: kernel_nodes.SavedNodes) -> kernel_nodes.SavedNodes:
        """Returns `nodes` with those that the CPU makes of what other providers leave to it.

        They are optimised further after the graph was divided.
        """
        labels = self.labels.kernels
        if not any(map(compiled_subgraphs.is_compiled, labels)) or not nodes.lacks(labels):
            return nodes
        later = self.saved.with_name("later.onnx")
        self.factory.save_on_cpu(later, divided=False)
        return replace(nodes, later=kernel_nodes.SavedNodes.read(later).nodes)

    def _durations(self) -> FloatArray:
        """Returns the times of the profiled runs, µs."""
        return np.concatenate([table.dur for table in self.tables]).astype(np.float64)

    def _bodies(self, order: Sequence[int]) -> FloatArray:
        """Returns how many bodies run in a call of each kernel; `order` are their labels."""
        calls, bodies = (
            self._joined(tables).sum(axis=0)[order]
            for tables in ([t.calls for t in self.tables], [t.bodies for t in self.tables])
        )
        each: FloatArray = bodies / np.maximum(calls, 1)
        return each

    def _bias(self, kernels: Sequence[Kernel], bodies: FloatArray) -> FloatArray:
        """Returns the overhead of a call of each kernel, in which so many `bodies` run."""
        return np.array([self.bias.of(k, n) for k, n in zip(kernels, bodies, strict=True)])

    def _use(self) -> MachineUse | None:
        """Returns how busy the machine was; None where the system does not tell."""
        return use_of(self.wall, self.profiled, self.began)

    def finish(self) -> Run:
        """Returns all chunks as one Run, the kernels in the order in which they first ran."""
        kernels, order = self.kernels()
        bodies = self._bodies(order)
        apart = sum(table.apart_us for table in self.tables)
        samples = self._joined([table.self_us for table in self.tables])[:, order]
        return Run(
            executor=EXECUTOR,
            batch=self.feedset.batch,
            inputs={name: type_text(value) for name, value in self.feedset.feeds.items()},
            wall_us=np.array(self.wall.us),
            instrumented_us=self._durations(),
            samples=samples.astype(np.float32),
            bias_us=self._bias(kernels, bodies),
            kernels=kernels,
            notes=(
                *self.feedset.notes,
                *self._few(),
                *self._idle(kernels),
                *device_notes.notes(kernels, apart),
            ),
            # each body loses the same part of a tick, between none and a whole one
            bias_error_us=np.hypot(self.bias.error, bodies * _TICK_US / math.sqrt(12)),
            tick_us=_TICK_US,
            empty_us=np.array(self.empty_us) if self.empty_us else None,
            returning_us=math.nan if self.returning is None else self.returning.us(),
            use=self._use(),
        )

    def _idle(self, kernels: Sequence[Kernel]) -> tuple[str, ...]:
        """Returns a note if the provider that was asked for ran no kernel."""
        asked = providers.known(self.factory.settings.provider).name
        if not kernels or any(kernel.provider == asked for kernel in kernels):
            return ()
        return (
            f"{asked} ran no node: all ran on the CPU. Its options may name no device of this "
            "machine, or it has none of these operators",
        )

    def _few(self) -> tuple[str, ...]:
        return self.factory.settings.notes(self.state.runs, self.state.seconds)

    def _joined(self, tables: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Concatenates chunks; a kernel absent from a chunk ran 0 times in it."""
        width = len(self.labels.kernels)
        return np.concatenate([np.pad(t, ((0, 0), (0, width - t.shape[1]))) for t in tables])
