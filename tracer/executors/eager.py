"""Profiles a live model of a framework: its runs in blocks, its errors, and its calls as rows."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from tracer.containment.activity import Progress
from tracer.errors import InputError, LimitError, TracerError
from tracer.executors.calls import Calls, described
from tracer.executors.measuring import Recorder, RunTimes, spread, use_of, warm_up
from tracer.executors.registry import Profiled
from tracer.executors.settings import EagerSettings, MeasuringSettings
from tracer.records.counted_runs import MachineUse
from tracer.records.trace import Kernel, Run
from tracer.support.measurements import Moment, RunTimer
from tracer.support.types import FloatArray

_OUT_OF_MEMORY = ("can't allocate memory", "out of memory")

_PLAIN_SHARE = 10
"""Recorded runs for each undisturbed run, once there are many."""
_PLAIN_MOST, _PLAIN_LEAST = 20, 5
"""Limits of the undisturbed runs before and after the first recorded runs."""

_BLOCK_US = 2e6
_FIRST_BLOCK = 20
"""Most runs of the first block, before which the time of a run is unknown."""

ModelT = TypeVar("ModelT")
Arrays: TypeAlias = Sequence[Any]
"""The inputs of a model by position: numpy arrays, the batch first."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """µs that recording adds for each call: `inside` its own time, and to the enclosing call."""

    inside: float
    outside: float

    @property
    def total(self) -> float:
        """µs for each call, inside and outside."""
        return self.inside + self.outside

    def at_most(self, limit: float) -> "Overhead":
        """Returns the overhead, scaled down where its total exceeds `limit`, µs a call."""
        share = min(1.0, max(0.0, limit) / self.total) if self.total else 0.0
        return Overhead(self.inside * share, self.outside * share)


@dataclass(frozen=True, slots=True)
class Measured:
    """One executor on one batch: the times of undisturbed and of recorded runs, µs."""

    executor: str
    provider: str
    arrays: Arrays
    wall_us: Sequence[float]
    recorded_us: Sequence[float]
    overhead: Overhead
    notes: Sequence[str] = ()
    use: MachineUse | None = None
    names: Sequence[str] = ()

    @property
    def batch(self) -> int | None:
        """The first dimension of the first input; None for a scalar."""
        return int(self.arrays[0].shape[0]) if self.arrays and self.arrays[0].ndim else None

    @property
    def inputs(self) -> Mapping[str, str]:
        """Types of the inputs, by keyword or else by position."""
        names = self.names or [f"input{i}" for i in range(len(self.arrays))]
        return dict(zip(names, map(described, self.arrays), strict=True))


def profile_of(calls: Calls, measured: Measured) -> Profiled:
    """Returns the profile, with a note on the overhead of recording.

    An operator at a call site is a kernel; `scope` names the enclosing kernel.
    """
    rows = {site.path: site.node for site in calls.sites}
    outermost = {site.path for site in calls.sites if rows.get(site.scope) != site.node}
    counts = calls.calls()
    called = [column for column, count in enumerate(counts) if count]  # not in first runs alone
    idle = {site.node for site in calls.sites} - {calls.sites[column].node for column in called}
    kernels = tuple(
        Kernel(
            name=site.path, op_type=site.name, domain=calls.operations[site.node].domain,
            provider=measured.provider, node=site.node, scope=site.scope,
            inputs=(), outputs=(), attributes=(), output_types=(),
            input_types=() if site.path not in outermost else calls.operations[site.node].inputs,
            calls=counts[column], host_us=calls.host_us(column),
        )
        for column, site in ((column, calls.sites[column]) for column in called)
    )  # fmt: skip
    wall, recorded = np.array(measured.wall_us), np.array(measured.recorded_us)
    count = sum(kernel.calls for kernel in kernels)
    excess_us = np.median(recorded) - np.median(wall)
    overhead = measured.overhead.at_most(excess_us / max(count, 1.0))
    children: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        children[kernel.scope] += kernel.calls
    bias = [
        overhead.inside + overhead.outside * children[kernel.name] / kernel.calls
        for kernel in kernels
    ]
    subtracted = f"recording adds {overhead.total:.2f} µs to each of {count:,.0f} calls a run"
    negligible = "the overhead of recording is too small to measure, and is not subtracted"
    if calls.on_device:
        negligible = "recording adds nothing to kernels of the card, but slows their launches"
    note = (
        f"{subtracted if overhead.total else negligible}: a recorded run took "
        f"{np.median(recorded):,.0f} µs, an undisturbed run {np.median(wall):,.0f} µs (medians)"
    )
    run = Run(
        executor=measured.executor,
        batch=measured.batch,
        inputs=measured.inputs,
        wall_us=wall,
        instrumented_us=recorded,
        samples=calls.samples()[:, called],
        bias_us=np.array(bias),
        kernels=kernels,
        notes=(note, *measured.notes),
        use=measured.use,
    )
    operations = [row for node, row in calls.operations.items() if node not in idle]
    return Profiled(run, operations=tuple(operations))


class Alternating(Protocol):
    """A model that is open for undisturbed and for recorded runs."""

    def timed(self) -> float:
        """Makes an undisturbed run and returns its time, µs."""

    def runs(self, count: int) -> RunTimer:
        """Records `count` runs, and returns their times."""


class Recording(Alternating, Protocol):
    """A model that is open for runs; `calls` are those of the recorded runs so far."""

    @property
    def calls(self) -> Calls:
        """The kernels and rows of the recorded runs."""

    def most_runs(self) -> int:
        """Returns the most runs that are recorded in a row."""

    def observe(self) -> None:
        """Records what takes time to record, such as types, in a run of its own."""

    def notes(self, wall_us: float) -> tuple[str, ...]:
        """Returns what else the runs tell, of which an undisturbed one takes `wall_us`."""


class EagerExecutor(ABC, Generic[ModelT]):
    """Profiles live models of a framework; one class for each says how a model is opened."""

    settings = EagerSettings
    name: str

    @abstractmethod
    def opened(
        self, model: ModelT, arrays: Arrays, settings: EagerSettings
    ) -> AbstractContextManager[Recording]:
        """Opens `model` and runs it once, which may fail; restores it afterwards."""

    @abstractmethod
    def overhead(self, settings: EagerSettings) -> Overhead:
        """Returns the overhead of recording a call."""

    def profile(
        self, model: ModelT, arrays: Arrays, settings: EagerSettings, progress: Progress
    ) -> Profiled:
        """Profiles `model` on `arrays` (numpy, the batch first); restores the model afterwards.

        Raises InputError where the model does not run on the arrays, UsageError for a loss that
        does not suit its outputs or an absent device, LimitError out of memory.
        """
        with self.opened(model, arrays, settings) as recording:
            warm_up(recording.timed, settings, progress)
            recording.observe()
            began = Moment.now()
            walls, recorded = alternate(
                settings, recording, progress, recording.calls.samples, recording.most_runs
            )
        overhead = self.overhead(settings)
        measured = Measured(
            self.name, settings.device, arrays, walls.us, recorded.us, overhead,
            (
                *settings.notes(len(recorded.us), sum(recorded.us) / 1e6),
                *recording.notes(float(np.median(walls.us))),
            ),
            use_of(walls, recorded, began), settings.names,
        )  # fmt: skip
        return profile_of(recording.calls, measured)

    @contextmanager
    def ready(
        self, model: ModelT, arrays: Arrays, settings: EagerSettings
    ) -> Iterator[Callable[[], float]]:
        """Runs `model` once; inside the block a call times one step, in µs."""
        with self.opened(model, arrays, settings) as recording:
            yield recording.timed

    @contextmanager
    def recording(
        self, model: ModelT, arrays: Arrays, settings: EagerSettings
    ) -> Iterator[Recorder]:
        """Runs `model` once; the profiler is on in recorded runs only."""
        durations: list[float] = []
        with self.opened(model, arrays, settings) as recording:
            calls = recording.calls
            yield Recorder(
                recording.timed,
                lambda runs: durations.extend(recording.runs(runs).us),
                lambda: RunTimes(
                    [site.path for site in calls.sites], calls.samples(), np.array(durations)
                ),
            )


def alternate(
    settings: MeasuringSettings,
    recording: Alternating,
    progress: Progress,
    samples: Callable[[], FloatArray],
    most_runs: Callable[[], int] | None = None,
) -> tuple[RunTimer, RunTimer]:
    """Returns the times of undisturbed runs and of recorded runs in blocks W P P W …

    `samples` returns the times of all recorded runs (runs × kernels), µs.
    The order alternates from block to block, so that drift cancels out. A block takes some seconds.
    The first makes at most half of the runs, so that undisturbed runs lie on both sides.
    """
    plain = recording.timed
    walls, timer = RunTimer(), RunTimer()
    times = timer.us
    blocks = 0
    expected_s = plain() / 1e6
    uncertain = 0.0
    while missing := settings.missing_runs(len(times), sum(times) / 1e6, expected_s, uncertain):
        if times:
            fitting = min(missing, max(1, int(_BLOCK_US * len(times) / max(sum(times), 1e-9))))
        else:
            fitting = min(-(-missing // 2), _FIRST_BLOCK)
        count = fitting if most_runs is None else min(fitting, max(1, most_runs()))
        least = max(min(count, _PLAIN_MOST), _PLAIN_LEAST) if blocks < 2 else 1
        plain_count = max(count // _PLAIN_SHARE, least)
        if blocks % 2 == 0:
            _add_block(walls, plain, plain_count)
        made = recording.runs(count)
        timer.add(made, range(len(made.us)))
        if blocks % 2:
            _add_block(walls, plain, plain_count)
        blocks += 1
        known = samples()
        uncertain = spread(settings, known, np.zeros(known.shape[1]), 0.0)
        seconds = sum(times) / 1e6
        total = len(times) + settings.missing_runs(len(times), seconds, spread=uncertain)
        progress(len(times), total, "profiling")
    return walls, timer


def _add_block(walls: RunTimer, plain: Callable[[], float], count: int) -> None:
    plain()  # wakes threads and fills caches that slept since the last block; not counted
    for _ in range(count):
        walls.take(plain)


@contextmanager
def failing_clearly(model: object, inputs: Sequence[Any]) -> Iterator[None]:
    """Translates errors of the block: LimitError when out of memory, else InputError."""
    shapes = ", ".join(map(described, inputs))
    try:
        yield
    except TracerError:  # the code of the model may raise our errors
        raise
    except SystemExit as error:
        raise InputError(
            f"{type(model).__name__} ends the program (sys.exit) when it is run on {shapes}",
            "Take that out of its code.",
        ) from error
    except Exception as error:  # any exception of the model's own code
        if isinstance(error, MemoryError) or any(t in str(error) for t in _OUT_OF_MEMORY):
            what = f"not enough memory to run {type(model).__name__} on {shapes}"
            raise LimitError(what, "Use a smaller batch.") from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = "; ".join(lines[:3]).rstrip(".:") or type(error).__name__
        raise InputError(
            f"{type(model).__name__} does not run on {shapes}: {reason}",
            "Check --input-shape, --input-dtype and --batch first; --debug shows where.",
        ) from error
