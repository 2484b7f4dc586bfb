"""Measures the profiler's overhead on every `dur`, on this machine at this thread count.

Only whole µs of a body's run are subtracted from the kernel around it, and the profiler records
that run in the time of that kernel: so each run of a body adds more to it, which a Loop tells.

The profiler stamps the end of a kernel after it has built the strings of the event. So each `dur`
is too long by some µs, which grow with the kernel's tensors and with their dimensions. On a chain
of trivial nodes `sum(dur)` exceeds the time of an undisturbed run, minus an empty run, by the
overhead of the nodes. A least-squares fit over chains of several operators gives the coefficients.

A node's time is then its share of an undisturbed run: its kernel, and the 0.1 to 0.3 µs in which
the runtime dispatches it. The rest of a run is the time of an empty run (see `empty_run`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import onnxruntime as ort

from tracer.containment import signals
from tracer.executors.onnxruntime import calibration_models
from tracer.records import environment
from tracer.records.trace import Kernel
from tracer.support import cache as caches
from tracer.support.types import FloatArray

_MEASURING_S = 3.0
"""Seconds that a measurement may take while other programs run."""
_METHOD = 2
"""Version of the method; cached overheads of other versions are measured again."""


_Microseconds = Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]
"""At most a second: a stored number beyond it was not measured."""


@dataclass(frozen=True, slots=True)
class Bias:
    """µs added to the `dur` of one call of a kernel, linear in its tensors and their dimensions.

    `error` is the standard deviation of the residuals: the error for a single kernel. `per_body` is
    added to the time of a kernel outside its bodies by each run of one.
    """

    fixed: _Microseconds
    per_tensor: _Microseconds
    per_dimension: _Microseconds = 0.0
    error: _Microseconds = 0.0
    per_body: _Microseconds = 0.0

    def of(self, kernel: Kernel, bodies: float = 0.0) -> float:
        """Returns the overhead of a call of a kernel in which `bodies` run.

        Noise of the fit never makes it negative.
        """
        return self.of_size(*size(kernel)) + self.per_body * bodies

    def of_size(self, tensors: int, dimensions: int) -> float:
        """Returns the overhead of a call with these tensors and dimensions, and without bodies."""
        return max(0.0, self.fixed + self.per_tensor * tensors + self.per_dimension * dimensions)


NONE = Bias(0.0, 0.0)
"""The overhead of runs that are not corrected."""


def size(kernel: Kernel) -> tuple[int, int]:
    """Returns how many tensors a kernel's event describes, and their dimensions in total."""
    types = (*kernel.input_types, *kernel.output_types)
    return len(types), sum(len(kind.shape or ()) for kind in types)


def in_time(threads: int) -> Bias | None:
    """Returns what `measure` does; None where a time limit leaves too little to measure it."""
    if signals.seconds_left() < _MEASURING_S and _decoded(caches.read(_file(threads))) is None:
        return None
    return measure(threads)


def _file(threads: int) -> Path:
    cpu = environment.cpu_model(), environment.cpu_flags()
    return caches.file("bias", (_METHOD, ort.__version__, threads, *cpu))


@cache
def measure(threads: int) -> Bias:
    """Returns the overhead on this machine; it is cached in the user's cache folder.

    The profiler works on the CPU, whatever provider runs the kernel: so it is measured there, where
    every node is a kernel, and none returns before it is done.

    A measurement takes about a second. The machine may be faster or slower in a later run:
    `tracer.analyzers.correction` scales the overhead so that the times of the run agree.
    """
    path = _file(threads)
    cached = _decoded(caches.read(path))
    if cached is not None:
        return cached
    bias = fit(*calibration_models.excess(threads))
    bias = replace(bias, per_body=calibration_models.excess_of_a_body(threads, bias.of_size))
    caches.store(path, msgspec.json.encode(bias))
    return bias


def fit(sizes: Sequence[tuple[int, int]], excess: FloatArray) -> Bias:
    """Fits `excess` (µs a node) to the (tensors, dimensions) of a node, by least squares.

    `error` is the root mean square of the residuals, by degrees of freedom.
    """
    design = np.array([(1.0, tensors, dimensions) for tensors, dimensions in sizes])
    solution, *_ = np.linalg.lstsq(design, excess, rcond=None)
    residuals = excess - design @ solution
    dof = max(1, len(excess) - design.shape[1])
    fixed, per_tensor, per_dimension = map(float, solution)
    return Bias(fixed, per_tensor, per_dimension, float(np.sqrt((residuals**2).sum() / dof)))


def _decoded(data: bytes | None) -> Bias | None:
    try:
        return None if data is None else msgspec.json.decode(data, type=Bias)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # written by something else, or cut
        return None
