"""Measures setups side by side: their times in turns, their outputs, their memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.executors import registry
from tracer.executors.measuring import Pace, by_side, counting, sessions, timed
from tracer.graph import stored_weights
from tracer.inputs.feedset import Feeds
from tracer.support.types import FloatArray
from tracer.tuning import memory
from tracer.tuning.setup import Setup

EXECUTOR = "onnxruntime"
Blocks: TypeAlias = list[FloatArray]
"""Median time of a sample in the runs of each block, µs: an array for each session."""

_PACE = Pace(block_us=100.0, least_runs=1, session_s=0.05)
"""That of whole runs in a comparison."""
_LEAST_SESSIONS = 3
"""With fewer, the spread of sessions is not known."""

Enough: TypeAlias = Callable[[Sequence[Blocks]], bool]


class Bench(Protocol):
    """What measures setups. Decisions of a search are tested with one that is told the times."""

    def race(self, setups: Sequence[Setup], seconds: float, is_enough: Enough) -> list[Blocks]:
        """Returns the times of setups, whose runs take turns until they are enough."""

    def outputs(self, setup: Setup) -> Sequence[Any]:
        """Returns the outputs of one run, in order."""

    def memory(self, setup: Setup, seconds: float) -> int | None:
        """Returns the bytes that a session takes at most; None if not known within `seconds`."""


@dataclass
class LimitedBench:
    """A bench that begins nothing of which it knows that it would end after `ends` of `clock`.

    What was opened, raced and probed before tells how long the next takes at least.
    """

    bench: Bench
    clock: Callable[[], float]
    ends: float
    _opened: list[float] = field(default_factory=list, repr=False)
    _session_s: float = 0.0
    _probe_s: float = 0.0

    def fits(self, sides: int) -> bool:
        """Whether the fewest sessions of a race of so many setups would end in time."""
        return self.clock() + _LEAST_SESSIONS * sides * self._session_s <= self.ends

    def race(self, setups: Sequence[Setup], seconds: float, is_enough: Enough) -> list[Blocks]:
        """Returns the times of setups. Ask before whether they fit."""
        began = self.clock()
        blocks = self.bench.race(setups, seconds, is_enough)
        self._session_s = (self.clock() - began) / (len(blocks) * len(blocks[0]))
        return blocks

    def outputs(self, setup: Setup) -> Sequence[Any]:
        """Returns the outputs of one run."""
        began = self.clock()
        outputs = self.bench.outputs(setup)
        self._opened.append(self.clock() - began)
        # a session lasts as long as it took to open
        self._session_s = 2 * sum(self._opened) / len(self._opened)
        return outputs

    def memory(self, setup: Setup, seconds: float = math.inf) -> int | None:
        """Returns the bytes that a session takes; None if not known in time, or in `seconds`."""
        began = self.clock()
        seconds = min(seconds, self.ends - began)
        if seconds <= self._probe_s:
            return None
        memory = self.bench.memory(setup, seconds)
        self._probe_s = self.clock() - began
        return memory


@dataclass(frozen=True, slots=True)
class _Order:
    """The seed of the order of turns, and the threads of a side: 1 where none spins."""

    seed: int
    threads: int


@dataclass(frozen=True, slots=True)
class OnnxruntimeBench:
    """Runs setups in onnxruntime, by the turns of a comparison of whole runs."""

    seed: int
    progress: Progress

    def race(self, setups: Sequence[Setup], seconds: float, is_enough: Enough) -> list[Blocks]:
        """Returns the times of setups; their sessions are opened anew, together where they fit.

        Turns wait for threads that spin, where a setup has some.
        """
        with signals.keep_nothing():  # what is complete of a race decides nothing
            made = sessions(
                [partial(timed, partial(_ready, setup)) for setup in setups],
                _PACE,
                _Order(self.seed, 0 if any(setup.spins for setup in setups) else 1),
                not any(stored_weights.is_large(setup.model) for setup in setups),
                _LEAST_SESSIONS,
                lambda made: is_enough(by_side(made, len(setups))),
                counting(self.progress, f"measuring {len(setups)} settings in turns"),
                seconds,
            )
        return by_side(made, len(setups))

    def outputs(self, setup: Setup) -> Sequence[Any]:
        """Returns the outputs of one run. Raises the errors of onnxruntime's executor."""
        opened: AbstractContextManager[Callable[[Feeds], Sequence[Any]]]
        opened = registry.find_tensors(EXECUTOR).outputs(setup.model, setup.settings)
        with opened as run:
            return run(setup.feedset.feeds)

    def memory(self, setup: Setup, seconds: float) -> int | None:
        """Returns the bytes that a session takes at most, in a process of its own."""
        return memory.peak_bytes(setup, seconds)


@contextmanager
def _ready(setup: Setup) -> Iterator[Callable[[], float]]:
    """Opens a setup; inside the block a call times a run, in µs for each original sample."""
    executor = registry.find_alternating(EXECUTOR)
    with executor.ready(setup.model, setup.feedset, setup.settings) as run:
        yield lambda: run() / setup.samples
