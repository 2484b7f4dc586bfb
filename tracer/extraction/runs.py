"""Runs cases in processes that may die: one for each release, which forks for each run.

A process that imports a runtime takes a second, its fork some milliseconds. So a run that crashes
or does not end costs no more than one that does.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import pickle
import re
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import onnx

from tracer.containment.calls import RemoteProcess
from tracer.errors import is_lack_of_memory
from tracer.exporters import writing
from tracer.extraction.cutting import Case
from tracer.graph.loading import OnnxSource, open_model
from tracer.graph.model import encoded
from tracer.support.temporary import TemporaryFolder
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

    For a process that died that is the signal; a run that `lacks_memory` shows no fault. `us` is
    the median time of a run, if it was timed.
    """

    outputs: Sequence[Any] = field(default=(), repr=False)
    error: str = ""
    us: float = 0.0
    overflows: int = 0
    lacks_memory: bool = False


class Runner:
    """Holds the processes; it lives inside `with`. `runs` counts what was run."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str, ...], RemoteProcess] = {}
        self._stack = contextlib.ExitStack()
        self.runs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def observe(
        self, case: Case, side: Side, is_timed: bool = False, has_outputs: bool = True
    ) -> Observed:
        """Runs a case once, or as often as its time needs."""
        self.runs += 1
        if side.folders not in self._processes:
            process = self._stack.enter_context(RemoteProcess(side.folders))
            self._processes[side.folders] = process
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
        return Observed(error=error_line(str(error)), lacks_memory=is_lack_of_memory(error))


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
