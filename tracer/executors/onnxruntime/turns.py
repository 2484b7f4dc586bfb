"""Records turns of a model under onnxruntime's profiler.

The profiler writes its events when it ends, in the order in which the runs were made: so the runs
of a turn are told apart by their number.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tracer.executors.onnxruntime import (
    empty_run,
    feeding,
    node_names,
    profile_events,
    self_times,
    sessions,
)
from tracer.executors.onnxruntime.plain_session import PlainSession
from tracer.executors.onnxruntime.saved_graph import Folder
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.executors.turns import Recorder, RunTimes
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.support.timing import elapsed_us


@contextmanager
def recorder(model: Model, feedset: FeedSet, settings: OrtSettings) -> Iterator[Recorder]:
    """Opens a session and a profiled one, and runs both once.

    Where both do not fit in memory beside each other, the profiled one replaces the other in the
    first turn, which must be the only one.
    """
    factory = sessions.Factory(model, node_names.serialize(model), settings)
    plain = PlainSession(factory, feedset)
    empty = empty_run.runner(model, feedset.feeds, plain.run(), settings)
    folder = Folder()
    profiled = _Profiled(plain, folder.path)
    if not plain.gives_way:
        profiled.record(0)
    yield Recorder(
        plain=lambda: elapsed_us(plain.run),
        record=profiled.record,
        read=profiled.read,
        empty=None if empty is None else lambda: elapsed_us(empty),
    )


@dataclass
class _Profiled:
    """A session under the profiler; `counted` tells which of its runs count."""

    plain: PlainSession
    folder: Path
    counted: list[bool] = field(default_factory=list)
    session: Any = None
    run: Callable[[], object] | None = None

    def record(self, runs: int) -> None:
        """Makes `runs` that count, after one that fills caches and wakes threads."""
        for index in range(1 + runs):
            self._opened()()
            self.counted.append(index > 0)

    def _opened(self) -> Callable[[], object]:
        if self.run is None:
            if self.plain.gives_way:
                self.plain.close()
            factory, feeds = self.plain.factory, self.plain.feedset.feeds
            self.session = factory.open(profile=self.folder / "profile")
            self.run = feeding.prepared(factory, self.session, feeds)
        return self.run

    def read(self) -> RunTimes:
        """Reads and deletes the profile."""
        path, labels = Path(self.session.end_profiling()), profile_events.Labels()
        events = profile_events.read(path, labels)
        path.unlink()
        table = self_times.tabulate(events, len(labels.kernels))
        rows = np.flatnonzero(self.counted[: len(table.dur)])
        model = self.plain.factory.model
        names = [node_names.original(model, label.name) for label in labels.kernels]
        return RunTimes(names, table.self_us[rows], table.dur[rows].astype(np.float64))
