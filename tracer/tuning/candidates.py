"""The setups that are tried: made once, measured side by side, and their outputs compared.

Quantising a large model takes long, which is estimated first. Where the processor adds products of
bytes in pairs, the sums that saturate are counted.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tracer.accumulators.spec.policy import as_policy
from tracer.analyzers.compare.contrast import Contrast, of_sessions
from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.errors import TracerError, UsageError
from tracer.executors import registry
from tracer.executors.measuring import Pace, by_side, counting, sessions, timed
from tracer.executors.settings import OrtSettings
from tracer.graph import loading, stored_weights
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.limits import Limits, enforced
from tracer.support.tolerance import Tolerance, compare, worst
from tracer.support.types import FloatArray
from tracer.text import brief, suggest
from tracer.tuning.changes import ALLOWED, Findings, Step, Steps, changes, find, model
from tracer.tuning.setup import Machine, Setup, peak_bytes

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
        return peak_bytes(setup, seconds)


@contextmanager
def _ready(setup: Setup) -> Iterator[Callable[[], float]]:
    """Opens a setup; inside the block a call times a run, in µs for each original sample."""
    executor = registry.find_alternating(EXECUTOR)
    with executor.ready(setup.model, setup.feedset, setup.settings) as run:
        yield lambda: run() / setup.samples


DEFAULT_RTOL = 1e-3
"""Error of an output ÷ its largest value that is no change of results: another order of float sums
stays below, floats of 16 bits and integers do not."""
Left = Callable[[], float]
NO_TIME = "no time was left"
"""How the fault of a candidate begins for which the search had no time."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a search may do: `goal`, effects that are allowed beside rounding, names of changes.

    `only` are the changes to try, all of them if empty.
    """

    goal: str = "latency"
    seconds: float = 120.0
    allow: frozenset[str] = frozenset()
    tolerance: Tolerance = Tolerance(relative=DEFAULT_RTOL)  # noqa: RUF009 - it is frozen
    only: tuple[str, ...] = ()

    def allows(self, effect: str) -> bool:
        """Whether a change with this effect may be tried."""
        return effect in ALLOWED or effect in self.allow


@dataclass(eq=False)
class Candidate:
    """Steps whose setup was made; `fault` says why it is not measured, '' if it is.

    `first` and `own` are the times of the unchanged setup and of this one, from all turns that both
    took.
    """

    steps: Steps
    why: str = ""
    setup: Setup | None = None
    fault: str = ""
    difference: float | None = None
    memory: int | None = None
    first: Blocks = field(default_factory=list, repr=False)
    own: Blocks = field(default_factory=list, repr=False)

    def add(self, first: Blocks, own: Blocks) -> None:
        """Adds sessions that it shared with the unchanged setup."""
        self.first += first
        self.own += own

    @property
    def contrast(self) -> Contrast:
        """Its time ÷ that of the unchanged setup."""
        return of_sessions(self.first, self.own) if len(self.own) > 1 else Contrast()


def wanted(findings: Findings, request: Request) -> list[Candidate]:
    """Returns a candidate for each form of each change that applies, not made yet.

    One whose effect is not allowed has the fault that says so. Raises UsageError for an unknown
    change in the request.
    """
    chosen = {find(name).name for name in request.only} or {c.name for c in changes()}
    candidates = []
    for change in changes():
        if change.name not in chosen or request.goal not in change.goals:
            continue
        why = change.applies(findings)
        if why is None:
            continue
        fault = "" if request.allows(change.effect) else f"needs --allow {change.effect}"
        steps = [Step(change, value) for value in change.values(findings)]
        candidates += [Candidate((step,), why, fault=fault) for step in steps]
    return candidates


class Workshop:
    """Makes the setups of steps, and compares their outputs with those of the unchanged one."""

    def __init__(self, base: Setup, request: Request, bench: Bench) -> None:
        self._made: dict[tuple[str, ...], Setup] = {(): base}
        self._request, self._bench = request, bench
        self._reference = bench.outputs(base)

    def make(self, candidate: Candidate) -> None:
        """Makes the setup of a candidate; its fault says what is wrong, if anything is."""
        if candidate.fault:
            return
        try:
            setup = self.setup(candidate.steps)
            outputs = self._bench.outputs(setup)
        except TracerError as error:
            candidate.fault = f"failed: {error.what}"
            return
        candidate.setup, tolerance = setup, self._request.tolerance
        compared = []
        for own, reference in zip(outputs, self._reference, strict=True):
            first = own
            is_array = isinstance(own, np.ndarray) and own.shape != reference.shape
            if is_array and setup.samples > 1:  # several copies of the inputs
                first = own[: len(reference)]
            compared.append(compare(first, reference, tolerance))
        difference = worst(compared)
        candidate.difference = difference.max_share
        may_change = any(step.change.effect in self._request.allow for step in candidate.steps)
        if difference.fault and not may_change:
            candidate.fault = f"changes results: {difference.fault}"

    def make_each(
        self, candidates: Sequence[Candidate], progress: Progress, left: Left = lambda: math.inf
    ) -> None:
        """Makes the setups of candidates within the seconds that are `left`.

        One that is like an earlier one has a fault, and one that would take longer than is left.
        """
        earlier: dict[tuple[str, str, int], Candidate] = {}
        for index, candidate in enumerate(candidates):
            progress(index, len(candidates), f"making {candidate.steps[0]}")
            rest = left()
            try:
                needed = 0.0
                if not candidate.fault:
                    needed = seconds_to_make(self.setup(()), candidate.steps[0])
            except TracerError as error:
                candidate.fault = f"failed: {error.what}"
            if not candidate.fault and not rest:
                candidate.fault = f"{NO_TIME} to make it: raise --max-seconds"
            elif not candidate.fault and needed > rest:
                candidate.fault = (
                    f"making it takes about {needed:,.0f} s, and {rest:,.0f} s are left: "
                    "raise --max-seconds"
                )
            self.make(candidate)
            if candidate.setup is None or candidate.fault:
                continue
            first = earlier.setdefault(candidate.setup.likeness, candidate)
            if first is not candidate:
                candidate.fault = f"the same as {first.steps[0]}"

    def setup(self, steps: Sequence[Step]) -> Setup:
        """Returns the setup with all of these steps, in order. Raises the errors of a change."""
        names = tuple(map(str, steps))
        if names not in self._made:
            *before, last = steps
            self._made[names] = last.apply(self.setup(before))
        return self._made[names]


def refuse_unknown(names: Collection[str]) -> None:
    """Raises UsageError for an effect that cannot be allowed."""
    effects = {change.effect for change in changes()} - set(ALLOWED)
    unknown = set(names) - effects
    if unknown:
        raise UsageError(
            f"--allow {', '.join(sorted(unknown))}: no change has this effect",
            f"{suggest(min(unknown), effects)}Allow {', '.join(sorted(effects))}.",
        )


_SMALL = 64 << 20
"""Bytes of weights up to which quantising takes a second or less, and is not estimated."""
_ROWS, _COLUMNS = 512, (512, 2048)
"""Shapes of the weights that are quantised as a probe: 1 MiB, and 4 MiB."""
_FLOAT_BYTES = 4


def seconds_to_make(setup: Setup, step: Step) -> float:
    """Returns about how many seconds `step` takes on a model; 0 for a small one.

    Two products are quantised in the same way, and their times extended to the weights of the
    model. Raises the errors of the change.
    """
    stored = stored_weights.stored_bytes(setup.model)
    if step.change.effect != "quantize" or stored <= _SMALL:
        return 0.0
    _seconds_for(step, _COLUMNS[0])  # imports the quantizer
    fewer, more = (_seconds_for(step, columns) for columns in _COLUMNS)
    few, many = (_FLOAT_BYTES * _ROWS * columns for columns in _COLUMNS)
    return fewer + max(0.0, more - fewer) * (stored - few) / (many - few)


def _seconds_for(step: Step, columns: int) -> float:
    """Returns the seconds that `step` takes on a product by weights (`_ROWS`, columns)."""
    weights = np.random.default_rng(0).standard_normal((_ROWS, columns), np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    graph = helper.make_graph(
        [node], "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _ROWS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto)
    feedset = FeedSet({"x": np.ones((1, _ROWS), np.float32)}, None, ())
    probe = Setup(loading.from_proto(proto), feedset, OrtSettings())
    began = time.monotonic()
    step.apply(probe)
    return time.monotonic() - began


_CHANGE, _TYPES = "static_int8", ("u8s8", "s8s8")
_NAMED = 3


def saturation_notes(
    candidates: Sequence[Candidate], machine: Machine, seconds: float, progress: Progress
) -> Iterator[str]:
    """Yields a note for each model of bytes by signed bytes that this processor adds in pairs.

    Its sums are emulated on the inputs of the search, for at most `seconds`. Nothing is emulated
    for a processor that adds such products exactly.
    """
    for candidate in candidates if machine.saturates else ():
        step = candidate.steps[0]
        if step.change.name != _CHANGE or step.value not in _TYPES or candidate.setup is None:
            continue
        try:
            limits = Limits(seconds=seconds)
            chosen = {"policy": as_policy(model.PAIRS), "limits": limits}
            settings = registry.settings_for(registry.EMULATED, chosen)
            setup, executor = candidate.setup, registry.find(registry.EMULATED)
            with enforced(limits):
                run = executor.profile(setup.model, [setup.feedset], settings, progress).run
        except TracerError as error:
            yield (
                f"{step}: this processor has no VNNI, so that pairs of products may saturate at 16 "
                f"bits; emulating them failed: {error.what}"
            )
            continue
        counts = {sums.node: int(sums.tally.outputs_changed.sum()) for sums in run.sums}
        changed = {node: count for node, count in counts.items() if count}
        nodes = sorted(changed, key=lambda node: -changed[node])
        more = f" and {len(nodes) - _NAMED:,} more" if len(nodes) > _NAMED else ""
        named = ", ".join(map(brief, nodes[:_NAMED])) + more
        yield f"{step}: " + (
            f"{sum(changed.values()):,} sums of {named} differ, as this processor adds pairs of "
            f"products in 16 bits, which saturate; {model.NARROWED} prevents it"
            if changed
            else "no sum saturates on these inputs, as this processor adds pairs of products"
        )
