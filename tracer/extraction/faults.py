"""The faults of a case: wrong values, a crash, a slower run, overflow; and the runs that show them.

A process that imports a runtime takes a second, its fork some milliseconds. So a run that crashes
or does not end costs no more than one that does.

A fault judges a case. Once it has seen the first, it takes as the same fault only one of the same
kind: an error in the same words, or outputs that are wrong by half as many digits or clearly.
"""

import contextlib
import ctypes
import faulthandler
import importlib
import math
import os
import pickle
import re
import resource
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import onnx

from tracer.analyzers.compare.contrast import Sample, of_turns
from tracer.containment.calls import RemoteProcess
from tracer.errors import InputError, is_lack_of_memory
from tracer.exporters import writing
from tracer.extraction.cutting import Case
from tracer.graph.loading import OnnxSource, open_model
from tracer.graph.model import Model, encoded
from tracer.graph.operators import precisions
from tracer.support.temporary import TemporaryFolder
from tracer.support.tolerance import Tolerance, compare
from tracer.text import without_code

_SECONDS = 60
"""Longest time of a run."""
_LARGE = 3 << 29
"""Bytes of weights from which a model goes to a file: a protobuf ends at 2 GiB."""
_CHUNK = 1 << 20
_TIMED_S, _LEAST_TIMED = 0.02, 3
"""How long runs of a session are repeated to be timed, and how often at least."""
_FILL = -6, 0x33
"""glibc's M_PERTURB, and the complement of the byte of new memory: -1.07e8 in float32."""
LEVELS = {
    "none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}  # fmt: skip
"""onnxruntime's names of its levels."""


@dataclass(frozen=True, slots=True)
class Side:
    """What runs a case: onnxruntime at a level, in a release, or the interpreter.

    `folders` come first where its process imports. With an `accumulator` the interpreter counts the
    sums that overflow it. If it `is_filled`, memory that nobody wrote has large numbers.
    """

    label: str
    level: str = "all"
    threads: int = 0
    folders: tuple[str, ...] = ()
    is_interpreter: bool = False
    accumulator: str = ""
    is_filled: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """What a run did: its outputs, or the `error` in a line that is the same for like errors.

    For a process that died that is the signal; `message` has the words of the runtime. A run that
    `lacks_memory` shows no fault. `us` is the median time of a run, if it was timed.
    """

    outputs: Sequence[Any] = field(default=(), repr=False)
    error: str = ""
    us: float = 0.0
    overflows: int = 0
    lacks_memory: bool = False
    message: str = ""


class Runner(contextlib.ExitStack):
    """Holds the processes; it lives inside `with`. `runs` counts what was run."""

    def __init__(self) -> None:
        super().__init__()
        self._processes: dict[tuple[str, ...], RemoteProcess] = {}
        self.runs = 0

    def observe(
        self, case: Case, side: Side, is_timed: bool = False, has_outputs: bool = True
    ) -> Observed:
        """Runs a case once, or as often as its time needs."""
        self.runs += 1
        if side.folders not in self._processes:
            self._processes[side.folders] = self.enter_context(RemoteProcess(side.folders))
        with TemporaryFolder() as folder:
            subject: bytes | str = str(folder / "model.onnx")
            if sum(value.nbytes for value in case.weights.values()) > _LARGE:
                writing.write(case.model(), folder / "model.onnx")
            else:
                subject = encoded(case.model(), "the candidate")
            process = self._processes[side.folders]
            words = (is_timed, has_outputs)
            observed: Observed = process.call(attempt, subject, case.feeds, side, *words)
        return observed


def attempt(
    subject: bytes | str, feeds: Mapping[str, Any], side: Side, is_timed: bool, has_outputs: bool
) -> Observed:
    """Runs a model, or the one of this path, in a fork of this process.

    The interpreter, which does not crash, runs here: it keeps what it has compiled.
    """
    if side.is_interpreter:
        return _run(subject, feeds, side, is_timed)
    importlib.import_module("onnxruntime")  # once, and not in each fork
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_SECONDS)
            if side.is_filled and (fill := getattr(ctypes.CDLL(None), "mallopt", None)):
                fill(*_FILL)
            for stream in (1, 2):  # what native code says there is in the errors, too
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            observed = _run(subject, feeds, side, is_timed)
            observed = observed if has_outputs else replace(observed, outputs=())
            with os.fdopen(writing, "wb") as answering:
                pickle.dump(observed, answering, 4)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    chunks = list[bytes]()
    while chunk := os.read(reading, _CHUNK):
        chunks.append(chunk)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Observed(error=signal.Signals(os.WTERMSIG(status)).name)
    if status:
        return Observed(error="its outputs need more memory than there is", lacks_memory=True)
    told: Observed = pickle.loads(b"".join(chunks))  # noqa: S301 - our fork's
    return told


def _run(subject: bytes | str, feeds: Mapping[str, Any], side: Side, is_timed: bool) -> Observed:
    try:
        if side.is_interpreter:
            from tracer.interpreter.interpreter import Interpreter

            source = onnx.ModelProto.FromString(subject) if isinstance(subject, bytes) else subject
            if side.accumulator:
                return Observed(overflows=count_overflows(source, side.accumulator, feeds))
            return Observed(Interpreter(source, late_kernels=True).run(None, feeds))
        import onnxruntime as ort  # as in the script that is written at last

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = side.threads
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[side.level])
        session = ort.InferenceSession(subject, options, providers=["CPUExecutionProvider"])
        outputs = session.run(None, feeds)
        return Observed(outputs, us=_time(lambda: session.run(None, feeds)) if is_timed else 0.0)
    except Exception as error:  # whatever a runtime raises
        told = without_code(str(error).strip()).removeprefix("<model in memory>: ").strip(" .")
        lacks_memory = is_lack_of_memory(error)
        return Observed(error=error_line(str(error)), lacks_memory=lacks_memory, message=told)


def error_line(message: str) -> str:
    """Returns the first line of a message, without the numbers and names that candidates change."""
    text = without_code((message.strip() or "?").splitlines()[0])
    text = re.sub(r"Name: ?'[^']*'|\([^()]*\)|'[^']*'|\{[^{}]*\}", "…", text)
    return re.sub(r"\S*/onnxruntime\S*|\d+", "#", text).strip()


def _time(run: Callable[[], object]) -> float:
    """Returns the median time of runs, in µs."""
    times = list[float]()
    while len(times) < _LEAST_TIMED or sum(times) < _TIMED_S:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2] * 1e6


def count_overflows(source: OnnxSource, accumulator: str, feeds: Mapping[str, Any]) -> int:
    """Returns how many sums of a run leave an accumulator."""
    from tracer.accumulators.emulation import AccumulatorEmulation
    from tracer.accumulators.spec.policy import as_policy
    from tracer.interpreter.interpreter import Interpreter

    model = open_model(source)
    emulation = AccumulatorEmulation(model, as_policy(accumulator))
    Interpreter(model, wrap_kernel=emulation.wrap).run(None, feeds)
    tallies = [sums.tally for sums in emulation.accumulations().values()]
    return sum(int(t.overflow(t.accumulator.bits).overflow_outputs.sum()) for t in tallies)


_CLEARLY = 100.0
"""Errors of so many tolerances are no rounding."""
_ROUNDINGS = 4
"""By so many roundings inputs are changed, to see what rounding alone does."""
_LOOKS = (3, 6, 12, 24)
"""Numbers of turns after which it is asked whether a side is slower: no more than it needs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that is there: what was expected and what was seen, in words.

    `error` is that of a crash. An output `index` that is wrong has `severity`, its error ÷ what is
    `allowed`, and is odd if its type or shape is another, it has NaN or infinity on one side alone,
    or it depends on memory that nobody wrote; `expected` is its value. Of a slower run that is its
    time, and `severity` the ratio.
    """

    expects: str
    sees: str
    error: str = ""
    index: int = 0
    severity: float = 0.0
    is_odd: bool = False
    allowed: float = 0.0
    expected: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Fault(ABC):
    """Judges cases: the first of the `sides` has the fault, the second, if any, has not."""

    runner: Runner
    sides: tuple[Side, ...]
    kind: ClassVar[str]

    @abstractmethod
    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns the fault of a case, if it is there and like the `first`."""


@dataclass(frozen=True)
class Wrong(Fault):
    """An output of the first side differs from that of the second by more than the tolerance.

    Where some roundings of the inputs do the same to the second side, and where its own outputs are
    no function of the inputs, nothing is wrong.
    """

    tolerance: Tolerance
    kind = "wrong"

    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns the output that is most wrong, if it is wrong enough.

        Raises InputError if the second side computes other values each time.
        """
        ours, theirs = self.sides
        expected = self.runner.observe(case, theirs)
        seen = self.runner.observe(case, ours) if not expected.error else expected
        worst = self._worst(case, seen, expected)
        if worst is None:
            return None
        again = self.runner.observe(case, replace(theirs, is_filled=True))
        if self._worst(case, again, expected):
            if first is None:
                told = f"the model has other values in each run of {theirs.label}"
                raise InputError(told, "They are random, or a node reads what none wrote.")
            return None
        if worst.severity < _CLEARLY:
            near = self._worst(case, self.runner.observe(_rounded(case), theirs), expected)
            if near and not near.is_odd and _ROUNDINGS * near.severity > worst.severity:
                return None
        again = self.runner.observe(case, replace(ours, is_filled=True))
        if self._worst(case, again, seen):
            worst = replace(worst, is_odd=True)
        if first is None:
            return worst
        least = min(math.sqrt(first.severity), _CLEARLY)
        return worst if worst.is_odd == first.is_odd and worst.severity >= least else None

    def _worst(self, case: Case, seen: Observed, expected: Observed) -> Finding | None:
        """Returns the output that differs most; None where a run failed, or none differs."""
        if seen.error or expected.error or len(seen.outputs) != len(expected.outputs):
            return None
        found = [self._wrong(case, place, seen, expected) for place in range(len(expected.outputs))]
        return max(filter(None, found), key=lambda each: each.severity, default=None)

    def _wrong(self, case: Case, place: int, seen: Observed, expected: Observed) -> Finding | None:
        ours, theirs = seen.outputs[place], expected.outputs[place]
        names = [value.name for value in case.proto.graph.output]
        model = Model.of(case.proto)
        known = precisions(model, {**case.kinds, names[place]: theirs})
        precision = known.get(names[place])
        difference = compare(ours, theirs, self.tolerance, precision)
        if not difference.fault:
            return None
        error, allowed = difference.max_abs, 0.0
        is_odd = error is None or not math.isfinite(error)
        if error is not None and precision is not None:
            share = self.tolerance.share(theirs.dtype, precision)
            wide = np.abs(theirs.astype(np.float64))
            allowed = max(self.tolerance.floor(theirs.dtype), precision.steps)
            allowed += share * float(wide[np.isfinite(wide)].max(initial=0.0))
            if not is_odd and error <= allowed:  # only the RMS is too large
                allowed = error / 2
        severity = math.inf if is_odd or not allowed or error is None else error / allowed
        of = f"output {place} ({names[place]})"
        return Finding(
            f"{of} is {_brief(theirs)} in {self.sides[1].label}",
            f"it is {_brief(ours)} in {self.sides[0].label}: {difference.fault}",
            index=place, severity=severity, is_odd=is_odd, allowed=allowed, expected=theirs,
        )  # fmt: skip


def _rounded(case: Case) -> Case:
    """Returns the case with each float some roundings up or down."""
    random, arrays = np.random.default_rng(0), case.arrays
    for name, value in arrays.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            steps = (
                random.choice([-_ROUNDINGS, _ROUNDINGS], value.shape) * np.finfo(value.dtype).eps
            )
            arrays[name] = (value * (1 + steps)).astype(value.dtype)
    return case.with_arrays(arrays, {})


def _brief(value: Any) -> str:
    """Returns the first numbers of a value, and its shape."""
    flat = np.ravel(value)
    return f"{flat[:4]}{' …' if flat.size > 4 else ''} of shape {np.shape(value)}"


@dataclass(frozen=True)
class Crash(Fault):
    """The first side dies, or fails; where the second did not fail at first, it never does."""

    kind = "crash"

    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns the error; like the first one it is the same signal, or has the same words."""
        seen = self.runner.observe(case, self.sides[0], has_outputs=False)
        if not seen.error or seen.lacks_memory or (first and seen.error != first.error):
            return None
        expects = "it runs" if first is None else first.expects
        if expects == "it runs":
            other = self.runner.observe(case, self.sides[1], has_outputs=False)
            if other.error and (first or other.lacks_memory):
                return None
            if other.error:
                told = f"({self.sides[1].label} fails too: the model or its inputs may be invalid)"
                expects = f"no failure {'' if seen.error.startswith('SIG') else told}".strip()
        how = f"{'dies' if seen.error.startswith('SIG') else 'fails'}: {seen.error}"
        return Finding(expects, f"{self.sides[0].label} {how}", error=seen.error)


@dataclass(frozen=True)
class Slower(Fault):
    """The first side takes longer than the second by more than the share `by`."""

    by: float
    kind = "slower"

    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns the ratio, if its interval lies above what is allowed, as compare computes it."""
        logs, level, most = list[float](), math.nan, 1 + self.by
        if first is not None:  # without the other nodes, the slow one is no less of the time
            most = max(most, math.sqrt(first.severity))
        while len(logs) < _LOOKS[-1]:
            turns = [
                self.runner.observe(case, side, is_timed=True, has_outputs=False)
                for side in self.sides
            ]
            if any(turn.error for turn in turns):
                return None
            logs.append(math.log(turns[0].us / turns[1].us))
            if len(logs) not in _LOOKS:
                continue
            level = turns[1].us
            unknown = Sample(math.nan, math.nan, 0)
            ratio = of_turns(np.array(logs), Sample(level, math.nan, 0), unknown)
            if ratio.low > most:
                break
            if ratio.ratio <= most or len(logs) == _LOOKS[-1]:
                return None
        return Finding(
            f"{' ÷ '.join(side.label for side in self.sides)} is {most:.3g} at most",
            f"it is {ratio.ratio:.3g} ({ratio.low:.3g} to {ratio.high:.3g})",
            severity=ratio.ratio,
            allowed=most,
            expected=level,
        )


@dataclass(frozen=True)
class Overflow(Fault):
    """Sums of the side, the interpreter, leave an accumulator."""

    kind = "overflow"

    def judge(self, case: Case, first: Finding | None) -> Finding | None:
        """Returns how many sums overflow."""
        seen = self.runner.observe(case, self.sides[0])
        if seen.error or not seen.overflows:
            return None
        own = self.sides[0].accumulator
        return Finding(f"all sums fit accumulator {own}", f"sums that overflow: {seen.overflows:,}")
