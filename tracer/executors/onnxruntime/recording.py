"""Records profiled runs of a model, alternating with undisturbed runs.

The profiler drops events beyond a million without a warning. So runs are recorded in chunks, each
in its own session, whose profile is read, checked and deleted before the next session opens.
`plan_session` says how many runs are next, and how many warm-up runs before them.
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
from tracer.executors.measuring import spread, use_of
from tracer.executors.onnxruntime import (
    calibration,
    device_times,
    feeding,
    kernel_nodes,
    profile_events,
    sessions,
)
from tracer.executors.settings import OrtSettings
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.records import environment
from tracer.records.counted_runs import counted_runs
from tracer.records.trace import Kernel, Run
from tracer.support.measurements import SPINNING_S, Moment, RunTimer, elapsed_us
from tracer.support.types import FloatArray

MOST_EVENTS = 900_000
"""onnxruntime's profiler drops events beyond 1,000,000 without a warning."""

_EVENT_BUDGET = 50_000
"""Events of a session where runs are short: some 40 MB of profile."""

_WORTHWHILE_RUNS = 20
"""Least runs for which a session is opened, if the profiler can hold their events."""

_PLAIN_SHARE = 10
"""Profiled runs for each undisturbed run, once there are many."""

_PLAIN_MOST, _PLAIN_LEAST = 20, 3
"""Undisturbed runs in a session of few runs: as many as these, within these limits."""
_PROFILED_TURN, _MOST_TURNS = 20, 3

_SESSION_WARMUP = 5
_WAKING_S = 0.1
"""Seconds of runs after which threads are awake and caches are full."""

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
    factory = sessions.Factory.of(model, settings)
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
    progress: activity.Progress = activity.silent
    plain: feeding.PlainSession | None = None
    empty: _Inference | None = None
    run_s: float = 0.0
    total: int = 0
    bias: calibration.Bias = calibration.NONE
    returning: feeding.ReturnComparison | None = None
    wall: RunTimer = field(default_factory=RunTimer)
    profiled: RunTimer = field(default_factory=RunTimer)
    empty_us: list[float] = field(default_factory=list)
    began: Moment = field(default_factory=Moment.now)
    tables: list[profile_events.RunTable] = field(default_factory=list)
    on_device: profile_events.RunTable | None = None
    device_note: str | None = None
    labels: profile_events.Labels = field(default_factory=profile_events.Labels)
    nodes: kernel_nodes.SavedNodes | None = None
    parts: Sequence[kernel_nodes.Part] = ()
    events_per_run: int = 0

    @property
    def state(self) -> "RunsSoFar":
        """Returns the runs so far, whose precision is left open."""
        return RunsSoFar(
            runs=sum(len(table.dur) for table in self.tables),
            seconds=sum(self.profiled.us) / 1e6,
            events=self.events_per_run or len(self.factory.model.nodes) + 2,
            expected_s=self.run_s,
        )

    def measured(self) -> "RunsSoFar":
        """Returns what the plan of the next chunk depends on."""
        if not self.tables or not self.wall.us:
            return self.state
        kernels, order = self.kernels()
        samples = self._stack_chunks([table.self_us for table in self.tables])[:, order]
        bias = self._bias(kernels, self._bodies(order)) * [kernel.calls for kernel in kernels]
        use = use_of(self.wall, self.profiled, self.began)
        counted = counted_runs(np.array(self.wall.us), self._durations(), samples, use)
        uncertain = spread(self.factory.settings, counted.samples, bias, _TICK_US)
        if uncertain and counted.is_busy:
            uncertain = max(uncertain, _BUSY_SPREAD)
        return replace(self.state, spread=uncertain)

    def add_profiled(self, warmup: int, count: int) -> None:
        """Records `count` runs in a new session, and checks that no event is missing.

        Undisturbed runs come before, after and in between, so that drift affects both kinds of
        runs alike. The `warmup` profiled runs after each turn of undisturbed runs are dropped.
        Sessions that do not fit side by side take turns once: opening one takes seconds.
        """
        turn = plain_turns(count)[1]
        if self.plain is not None and self.plain.closes_for_profiler:
            self._add_plain(turn, max(1, warmup))
            self.plain.close()
            fewer = self._add_session(warmup, [count], 0)
            self._add_plain(turn, max(1, warmup))
        else:
            fewer = self._add_session(warmup, split_runs(count), turn)
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
                    feeding.tidy_memory()
                    timer.time(run)
                    counted.append(index >= warmup)
                    if index == warmup:  # to read them takes longer than who has nothing is given
                        signals.keep(True)
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

    def _keep(
        self, table: profile_events.RunTable, counted: Sequence[bool], timer: RunTimer
    ) -> None:
        """Adds the runs that are `counted`; a run that was broken off may be missing or follow."""
        rows = np.flatnonzero(counted[: min(len(table.dur), len(timer.us))])
        self.tables.append(table.take(rows))
        self.profiled.add(timer, rows.tolist())
        signals.keep(bool(self.state.runs))

    def _read(self, session: Any) -> profile_events.RunTable:
        """Reads and deletes the profile of a session."""
        events, table = profile_events.read_ended(session, self.labels)
        self.events_per_run = max(1, len(events) // max(1, len(table.dur)))
        return table

    def add_device_times(self) -> None:
        """Records the time on a CUDA device in some more runs, if this onnxruntime does not.

        These runs count for nothing else: the second profiler makes them slower.
        """
        recorded = any(table.device_us is not None for table in self.tables)
        providers = {kernel.provider for kernel in self.labels.kernels}
        if recorded or all(environment.memory_of(name) != "cuda" for name in providers):
            return
        self.device_note = device_times.why_not()
        if self.device_note is not None:
            return
        self.progress(0, 0, "timing kernels on the device")
        if self.plain is not None and self.plain.closes_for_profiler:
            self.plain.close()
        session = self._open()
        run = feeding.prepared(self.factory, session, self.feedset.feeds)
        most = MOST_EVENTS // self.events_per_run
        self.on_device, self.device_note = device_times.measure(
            session, run, self.labels, self.saved.parent, most
        )

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
        """Opens a profiled session; the first session also saves the graph it runs.

        Of a provider that compiles, the CPU saves the graph that it divides.
        """
        prefix = self.saved.with_name("profile")
        if self.nodes is not None:
            return self.factory.open(profile=prefix)
        if not environment.provider_of(self.factory.settings.provider).compiles:
            with suppress(sessions.CompiledError):  # raised if this version compiles after all
                session = self.factory.open(profile=prefix, optimized=self.saved)
                self.nodes = kernel_nodes.SavedNodes.read(self.saved)
        if self.nodes is None:
            self.factory.save_on_cpu(self.saved)
            session = self.factory.open(profile=prefix)
            self.parts = kernel_nodes.recorded_parts(session)
            if self.parts and all(environment.is_cpu(part.provider) for part in self.parts):
                self.factory.save_on_cpu(self.saved, divided=False)  # it took nothing
            self.nodes = kernel_nodes.SavedNodes.read(self.saved, elsewhere=True)
        self.labels.repeated = self.nodes.repeated
        return session

    def kernels(self) -> tuple[tuple[Kernel, ...], list[int]]:
        """Returns the kernels in the order in which they first ran, and the label of each."""
        assert self.nodes is not None
        nodes, labels = self.nodes, self.labels.kernels
        if any(map(kernel_nodes.is_compiled, labels)) and nodes.lacks(labels):
            # what other providers leave to the CPU is optimised further after the graph was divided
            later = self.saved.with_name("later.onnx")
            self.factory.save_on_cpu(later, divided=False)
            nodes = replace(nodes, later=kernel_nodes.SavedNodes.read(later).nodes)
        calls = self._stack_chunks([table.calls for table in self.tables]).mean(axis=0)
        kernels = kernel_nodes.kernels(
            self.factory.model, nodes, labels, calls.tolist(), self.parts
        )
        recorded = self.tables if self.on_device is None else [self.on_device]
        on_device = [table.device_us for table in recorded if table.device_us is not None]
        if on_device:
            kernels = kernel_nodes.timed_on_device(
                kernels, self._stack_chunks(on_device).mean(axis=0)
            )
        order = sorted(range(len(labels)), key=lambda i: labels[i].first_us)
        return tuple(kernels[i] for i in order), order

    def _durations(self) -> FloatArray:
        """Returns the times of the profiled runs, µs."""
        return np.concatenate([table.dur for table in self.tables]).astype(np.float64)

    def _bodies(self, order: Sequence[int]) -> FloatArray:
        """Returns how many bodies run in a call of each kernel; `order` are their labels."""
        calls, bodies = (
            self._stack_chunks(tables).sum(axis=0)[order]
            for tables in ([t.calls for t in self.tables], [t.bodies for t in self.tables])
        )
        each: FloatArray = bodies / np.maximum(calls, 1)
        return each

    def _bias(self, kernels: Sequence[Kernel], bodies: FloatArray) -> FloatArray:
        """Returns the overhead of a call of each kernel, in which so many `bodies` run."""
        return np.array([self.bias.of(k, n) for k, n in zip(kernels, bodies, strict=True)])

    def finish(self) -> Run:
        """Returns all chunks as one Run, the kernels in the order in which they first ran."""
        kernels, order = self.kernels()
        bodies = self._bodies(order)
        tables = self.tables if self.on_device is None else [self.on_device]
        apart = sum(table.apart_us for table in tables)
        asked = environment.provider_of(self.factory.settings.provider).name
        idle = (
            f"{asked} ran no node: all ran on the CPU. Its options may name no device of this "
            "machine, or it has none of these operators"
        )
        if environment.memory_of(asked) == "cuda" and (problems := sessions.cuda_problems()):
            idle = f"{asked} ran no node: all ran on the CPU. {problems}"
        is_idle = bool(kernels) and all(kernel.provider != asked for kernel in kernels)
        samples = self._stack_chunks([table.self_us for table in self.tables])[:, order]
        return Run(
            executor=EXECUTOR,
            batch=self.feedset.batch,
            inputs=self.feedset.types,
            wall_us=np.array(self.wall.us),
            instrumented_us=self._durations(),
            samples=samples.astype(np.float32),
            bias_us=self._bias(kernels, bodies),
            kernels=kernels,
            notes=(
                *self.feedset.notes,
                *self.factory.settings.notes(self.state.runs, self.state.seconds),
                *((idle,) if is_idle else kernel_nodes.fallback_notes(kernels, asked)),
                *kernel_nodes.device_notes(kernels, apart, why=self.device_note),
            ),
            # each body loses the same part of a tick, between none and a whole one
            bias_error_us=np.hypot(self.bias.error, bodies * _TICK_US / math.sqrt(12)),
            tick_us=_TICK_US,
            empty_us=np.array(self.empty_us) if self.empty_us else None,
            returning_us=math.nan if self.returning is None else self.returning.us(),
            use=use_of(self.wall, self.profiled, self.began),
        )

    def _stack_chunks(self, tables: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Concatenates chunks; a kernel absent from a chunk ran 0 times in it."""
        width = len(self.labels.kernels)
        return np.concatenate([np.pad(t, ((0, 0), (0, width - t.shape[1]))) for t in tables])


@dataclass(frozen=True, slots=True)
class RunsSoFar:
    """The runs recorded so far; `events` is the number in one run, a guess before the first.

    `expected_s` is the time of a run before the first, 0 if unknown, and `spread` the uncertainty
    of the slowest kernels ÷ what it may be.
    """

    runs: int
    seconds: float
    events: int
    expected_s: float = 0.0
    spread: float = 0.0

    def missing(self, settings: OrtSettings) -> int:
        """Returns how many runs to add."""
        return settings.missing_runs(self.runs, self.seconds, self.expected_s, self.spread)

    def waking(self, settings: OrtSettings) -> int:
        """Returns how many runs wake threads and fill caches: one is enough of long runs."""
        run_s = self.seconds / self.runs if self.runs else self.expected_s
        enough = 1 + int(_WAKING_S / run_s) if run_s > 0 else _SESSION_WARMUP
        return min(settings.warmup, _SESSION_WARMUP, enough)


def plain_turns(profiled: int) -> tuple[int, int]:
    """Returns the turns of undisturbed runs beside `profiled` runs, and the runs in a turn.

    There are at least two turns, one before the profiled runs and one after them.
    """
    total = max(profiled // _PLAIN_SHARE, min(profiled, _PLAIN_MOST), _PLAIN_LEAST)
    turns = min(_MOST_TURNS, 2 + profiled // _PROFILED_TURN)
    return turns, -(-total // turns)


def split_runs(profiled: int) -> Sequence[int]:
    """Returns how many of the `profiled` runs lie between consecutive turns of undisturbed runs."""
    count = plain_turns(profiled)[0] - 1
    return [profiled * (i + 1) // count - profiled * i // count for i in range(count)]


def plan_session(done: RunsSoFar, settings: OrtSettings) -> tuple[int, int]:
    """Returns the warm-up runs before each part of the next session, and the runs of the session.

    The first session makes at most half the runs, and few: the number of events in a run is only
    known after it.
    """
    missing = done.missing(settings)
    room = MOST_EVENTS // done.events
    warmup = min(done.waking(settings), max(0, room - 1) // (_MOST_TURNS - 1))
    if done.runs:
        fitting = max(_EVENT_BUDGET // done.events, _WORTHWHILE_RUNS)
        return warmup, min(missing, fitting, max(1, room - warmup * (_MOST_TURNS - 1)))
    return min(warmup, 1), min(-(-missing // 2), max(1, _EVENT_BUDGET // (4 * done.events)))
