"""Sides with a release of their runtime: each runs in a process of its own."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from tracer.api.compare import SideSettings
from tracer.api.compare.sides import FrameworkSide, LiveSide, NamedSide, OnnxSide, Recorded, Runner
from tracer.containment.activity import Progress
from tracer.containment.calls import RemoteObject, RemoteProcess
from tracer.executors.measuring import Open, Opener
from tracer.executors.protocol import Tensors
from tracer.executors.releases import PACKAGES
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.records.trace import Trace

_BLOCK_US = 2_000.0
"""Least time of a block: the caches are those of the process before when it begins."""


@dataclass(frozen=True, slots=True)
class RemoteSide(OnnxSide):
    """An ONNX model that runs in a `process` of its own, with its release of the runtime."""

    process: RemoteProcess = field(default_factory=RemoteProcess, repr=False)

    @property
    def _local(self) -> OnnxSide:
        """The side as its process sees it."""
        return OnnxSide(**_values(self, OnnxSide))

    def run(
        self, runs: int | None, settings: SideSettings, progress: Progress | None = None
    ) -> Trace:
        """Profiles the model."""
        trace: Trace = self.process.call(OnnxSide.run, self._local, runs, settings)
        return trace

    def runner(self, settings: SideSettings) -> Runner:
        """Returns its runner, which is kept there: its inputs are chosen once."""
        return _remote_runner(self.process, self._local, settings, self.used_threads(settings))

    def tensors(self, feedset: FeedSet, settings: SideSettings) -> Tensors:
        """Returns the outputs, and all tensors, of one inference."""
        tensors: Tensors = self.process.call(OnnxSide.tensors, self._local, feedset, settings)
        return tensors

    @contextmanager
    def outputs(self, settings: SideSettings) -> Iterator[Callable[[Feeds], Sequence[Any]]]:
        """Opens the model; inside the block, each call returns the outputs of one inference."""
        with self.process.opened(OnnxSide.outputs, self._local, settings) as opened:
            yield partial(opened.call, "__call__")


@dataclass(frozen=True, slots=True)
class RemoteModule(FrameworkSide):
    """A model of a framework that runs in a `process` of its own, with its release of it."""

    process: RemoteProcess = field(default_factory=RemoteProcess, repr=False)

    @property
    def local(self) -> FrameworkSide:
        """The side as its process sees it."""
        return FrameworkSide(**_values(self, FrameworkSide))

    def run(
        self, runs: int | None, settings: SideSettings, progress: Progress | None = None
    ) -> Trace:
        """Profiles the model in its framework."""
        trace: Trace = self.process.call(FrameworkSide.run, self.local, runs, settings)
        return trace

    def runner(self, settings: SideSettings) -> Runner:
        """Returns its runner, which is kept there and loads the model again for each session."""
        return _remote_runner(self.process, self.local, settings, settings.threads)


def _values(side: LiveSide, kind: type[LiveSide]) -> dict[str, Any]:
    """Returns what a side has in the fields of a kind of sides."""
    return {each.name: getattr(side, each.name) for each in fields(kind)}


def _remote_runner(
    process: RemoteProcess, side: LiveSide, settings: SideSettings, threads: int
) -> Runner:
    """Returns the runner of a side of another process.

    With one thread, all processes run on one CPU: who shares another with a busy program would be
    slower as long as it stays there, which a model beside itself was by 3 to 11 %.
    """
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        process.call(os.sched_setaffinity, 0, {max(os.sched_getaffinity(0))})
    process.call(_keep_runner, side, settings)
    return Runner(
        partial(_remote_turns, process, "whole_runs"),
        partial(_remote_turns, process, "recording"),
        _BLOCK_US,
    )


_kept: list[Runner] = []
"""In the process of a side: its runner."""


def _keep_runner(side: LiveSide, settings: SideSettings) -> None:
    _kept[:] = [side.runner(settings)]


def _open_kept(what: str) -> AbstractContextManager[Open[Any]]:
    opener: Opener[Any] = getattr(_kept[0], what)
    return opener()


@dataclass(frozen=True, slots=True)
class _RemoteTurns:
    """A side that is open in another process; its clock is read there."""

    there: RemoteObject

    def timed(self) -> float:
        """Makes a run and returns its time, µs."""
        return float(self.there.call("timed"))

    def take_turn(self, runs: int, rest: Callable[[], object]) -> None:
        """Makes a block of `runs`."""
        self.there.call("take_turn", runs, rest)

    def finish(self) -> Any:
        """Returns what the turns measured."""
        return self.there.call("finish")


@contextmanager
def _remote_turns(process: RemoteProcess, what: str) -> Iterator[_RemoteTurns]:
    with process.opened(_open_kept, what) as opened:
        yield _RemoteTurns(opened)


@contextmanager
def with_releases(sides: Sequence[NamedSide], progress: Progress) -> Iterator[Sequence[NamedSide]]:
    """Yields the sides; where one has a release, each of a runtime has a process of its own.

    So has the installed release: only processes that hold the same else are compared fairly.
    Raises the errors of `Release.folders`.
    """
    if not any(not isinstance(side, Recorded) and side.release for side in sides):
        yield sides
        return
    with ExitStack() as stack:
        yield [_with_process(side, stack, progress) for side in sides]


def _with_process(side: NamedSide, stack: ExitStack, progress: Progress) -> NamedSide:
    if isinstance(side, OnnxSide) and side.executor in PACKAGES:
        return in_own_process(side, stack, progress)
    if isinstance(side, FrameworkSide) and side.framework in PACKAGES:
        process = _process_of(side, stack, progress)
        process.call(os.dup2, 2, 1)  # what its code prints is no data
        return RemoteModule(**_values(side, FrameworkSide), process=process)
    return side


def in_own_process(side: OnnxSide, stack: ExitStack, progress: Progress) -> RemoteSide:
    """Returns a side of a runtime in a process of its own, which `stack` ends.

    Raises the errors of `Release.folders`.
    """
    process = _process_of(side, stack, progress)
    return RemoteSide(**_values(side, OnnxSide), process=process)


def _process_of(side: LiveSide, stack: ExitStack, progress: Progress) -> RemoteProcess:
    folders = side.release.folders(progress) if side.release else []
    return stack.enter_context(RemoteProcess(folders))
