"""Run a model under onnxruntime's profiler, in turn with runs that nothing disturbs.

The profiler drops events beyond a million without a word, so runs are made in chunks, each in a
session of its own whose profile is read, checked and deleted before the next begins.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.errors import LimitError
from tracer.executors.onnxruntime import calibration, events, graph, nesting, prepared, sessions
from tracer.executors.onnxruntime.options import Options
from tracer.trace import Kernel, Run

if TYPE_CHECKING:
    import numpy as np

    from tracer.inputs import FeedSet
    from tracer.model import Model

Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is to do, and what it is that is being done."""

EXECUTOR = "onnxruntime"
_EVENT_BUDGET = 50_000
"""Events of one chunk: some 40 MB of profile, far from the million the profiler would hold."""

_LEAST_RUNS = 10
_DEFAULT_SECONDS = 1.0
_PLAIN_SHARE = 10
"""One undisturbed run for so many profiled ones, once there are many."""
_PLAIN_LEAST = 20
_CPU = "CPUExecutionProvider"


def profile(
    model: Model, feedset: FeedSet, options: Options, progress: Progress | None = None
) -> Run:
    """Profile `model` on `feedset`; every run asked for is recorded, or an error says why not.

    Raises ModelError or InputError for what onnxruntime refuses, UsageError for a provider that
    is not there, LimitError where one inference alone makes more events than the profiler holds.
    """
    report = progress or (lambda done, total, what: None)
    factory = sessions.Factory(model, prepared.serialize(model), options)
    bias = calibration.measure(options.threads, options.provider)
    plain = factory.open()
    with sessions.translated(model), tempfile.TemporaryDirectory(prefix="tracer-") as folder:
        recording = _Recording(factory, feedset, Path(folder))
        recording.warm_up(plain)
        while count := _next_chunk(recording, options):
            before = len(recording.wall_us) // _PLAIN_LEAST % 2 == 0  # W P P W: drift cancels out
            plain_runs = max(count // _PLAIN_SHARE, min(count, _PLAIN_LEAST))
            if before:
                recording.add_plain(plain, plain_runs)
            recording.add_profiled(count)
            if not before:
                recording.add_plain(plain, plain_runs)
            report(recording.done, max(recording.done, options.runs or 0), "profiling")
    return recording.finish(bias)


@dataclass
class _Recording:
    """What has been measured so far of one model on one set of feeds."""

    factory: sessions.Factory
    feedset: FeedSet
    folder: Path
    wall_us: list[float] = field(default_factory=list)
    tables: list[nesting.RunTable] = field(default_factory=list)
    labels: events.Labels = field(default_factory=events.Labels)
    optimized: graph.OptimizedGraph | None = None
    events_per_run: int = 0

    @property
    def done(self) -> int:
        """Profiled runs made."""
        return sum(len(table.dur) for table in self.tables)

    @property
    def measured_us(self) -> float:
        """Time spent in profiled runs."""
        return float(sum(table.dur.sum() for table in self.tables))

    def warm_up(self, session: Any) -> None:
        """Runs that do not count: the first ones of a session allocate and choose kernels."""
        for _ in range(self.factory.options.warmup):
            session.run(None, dict(self.feedset.feeds))

    def add_plain(self, session: Any, count: int) -> None:
        """Time whole runs without the profiler."""
        feeds = dict(self.feedset.feeds)
        session.run(None, feeds)  # threads that slept since the last chunk are woken uncounted
        for _ in range(count):
            start = time.perf_counter_ns()
            session.run(None, feeds)
            self.wall_us.append((time.perf_counter_ns() - start) / 1e3)

    def add_profiled(self, count: int) -> None:
        """A session of `count` runs after its warm-up, read and checked."""
        session = self._open()
        self.warm_up(session)
        feeds = dict(self.feedset.feeds)
        for _ in range(count):
            session.run(None, feeds)
        path = Path(session.end_profiling())
        recorded = events.read(path, self.labels)
        path.unlink()
        table = nesting.tabulate(recorded, len(self.labels.seen))
        warmup = self.factory.options.warmup
        if len(table.dur) != count + warmup:
            raise LimitError(
                f"{self.factory.model.name}: onnxruntime recorded {len(table.dur)} of "
                f"{count + warmup} runs; its profiler drops what is beyond 1,000,000 events",
                "One inference makes too many events: profile fewer loop iterations.",
            )
        self.events_per_run = max(1, len(recorded) // len(table.dur))
        kept = slice(warmup, None)
        self.tables.append(
            nesting.RunTable(table.dur[kept], table.self_us[kept], table.calls[kept])
        )

    def _open(self) -> Any:
        """A profiled session; the first one also tells what graph it runs."""
        prefix = self.folder / "profile"
        if self.optimized is not None:
            return self.factory.open(profile=prefix)
        saved = self.folder / "optimized.onnx"
        session = self.factory.open(profile=prefix, optimized=saved)
        self.optimized = graph.OptimizedGraph.read(saved)
        self.labels.repeated = self.optimized.repeated
        return session

    def finish(self, bias: calibration.Bias) -> Run:
        """Put the chunks together; kernels that some chunk did not meet ran 0 times in it."""
        import numpy as np

        assert self.optimized is not None
        width = len(self.labels.seen)
        samples = np.concatenate([_widened(t.self_us, width) for t in self.tables])
        calls = np.concatenate([_widened(t.calls, width) for t in self.tables])
        model = self.factory.model
        kernels = graph.kernels(model, self.optimized, self.labels.seen, graph.mean_calls(calls))
        return Run(
            executor=EXECUTOR,
            batch=self.feedset.batch,
            inputs={name: _described(value) for name, value in self.feedset.feeds.items()},
            wall_us=np.array(self.wall_us),
            instrumented_us=np.concatenate([t.dur for t in self.tables]).astype(np.float64),
            samples=samples.astype(np.float32),
            bias_us=np.array([bias.of(kernel) for kernel in kernels]),
            kernels=kernels,
            notes=(*self.feedset.notes, *_launch_notes(kernels)),
        )


def _launch_notes(kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """Kernels of an accelerator return before they are done; the wait shows up elsewhere."""
    providers = sorted({k.provider for k in kernels} - {_CPU, ""})
    return tuple(
        f"{provider} runs asynchronously: the times of its kernels are those of their launch"
        for provider in providers
    )


def _next_chunk(recording: _Recording, options: Options) -> int:
    """How many runs to profile next; 0 when there are enough.

    The first chunk takes half of them at most, so that undisturbed runs lie on both sides.
    """
    seconds = recording.measured_us / 1e6
    wanted_seconds = options.min_time
    if wanted_seconds is None:
        wanted_seconds = 0.0 if options.runs is not None else _DEFAULT_SECONDS
    least = options.runs if options.runs is not None else _LEAST_RUNS
    missing = max(0, least - recording.done)
    if not recording.tables:
        nodes = len(recording.factory.model.nodes) + 2
        return min(max(1, -(-missing // 2)), max(1, _EVENT_BUDGET // (4 * nodes)))
    if seconds < wanted_seconds:
        rate = recording.done / max(seconds, 1e-6)
        missing = max(missing, int(rate * (wanted_seconds - seconds)) + 1)
    budget = max(1, _EVENT_BUDGET // recording.events_per_run - options.warmup)
    return min(missing, budget)


def _widened(table: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.pad(table, ((0, 0), (0, width - table.shape[1])))


def _described(value: Any) -> str:
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    dtype = "string" if value.dtype.kind in "OUST" else value.dtype.name
    return f"{dtype}[{','.join(map(str, value.shape))}]"
