"""What onnxruntime's profiler adds to every `dur`, measured on this machine at this thread count.

The end of a kernel is stamped after the strings of its event are built, so each `dur` is too long
by some µs: the more, the more tensors the kernel has and the more dimensions they have. On a chain
of trivial nodes `sum(dur)` exceeds the time of an undisturbed run by just that much a node, once
what an empty run takes is off the latter. Chains of several operators give it by least squares.

A node's time is then what it adds to an undisturbed run: its kernel, and the 0.1 to 0.3 µs in which
the runtime turns to it. What a run takes besides is that of an empty one (see `emptied`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
import numpy as np
import onnxruntime as ort

from tracer.executors.onnxruntime import calibration_models
from tracer.records import environment
from tracer.records.trace import Kernel
from tracer.support import cache as caches
from tracer.support.types import FloatArray

_METHOD = 1
"""Raised when what is measured changes: what was kept before is then measured again."""


@dataclass(frozen=True, slots=True)
class Bias:
    """µs added to the `dur` of one call of a kernel, linear in its tensors and their dimensions.

    `error` is the standard deviation of what the line misses: how far a single kernel is off.
    """

    fixed: float
    per_tensor: float
    per_dimension: float = 0.0
    error: float = 0.0

    def of(self, kernel: Kernel) -> float:
        """The addition for one kernel; never negative, whatever the noise of the fit."""
        tensors, dimensions = size(kernel)
        return max(0.0, self.fixed + self.per_tensor * tensors + self.per_dimension * dimensions)


def size(kernel: Kernel) -> tuple[int, int]:
    """How many tensors a kernel's event describes, and how many dimensions they have together."""
    types = (*kernel.input_types, *kernel.output_types)
    return len(types), sum(len(kind.shape or ()) for kind in types)


@cache
def measure(threads: int, provider: str) -> Bias:
    """The bias on this machine, once measured kept in the user's cache folder.

    Measuring takes about a second. How fast the machine is at the moment of a later run is not
    known here: `analyzers.correction` scales the bias so that the times of the run agree.
    """
    seen = environment.cpu_model(), environment.cpu_flags()
    path = caches.file("bias", (_METHOD, ort.__version__, threads, provider, *seen))
    kept = _decoded(caches.read(path))
    if kept is not None:
        return kept
    found = fit(*calibration_models.excess(threads, provider))
    caches.keep(path, msgspec.json.encode(found))
    return found


def fit(sizes: Sequence[tuple[int, int]], excess: FloatArray) -> Bias:
    """Least squares of `excess` (µs a node) over (tensors, dimensions) of a node.

    `error` is the root mean square of what is left, by degrees of freedom.
    """
    design = np.array([(1.0, tensors, dimensions) for tensors, dimensions in sizes])
    solution, *_ = np.linalg.lstsq(design, excess, rcond=None)
    missed = excess - design @ solution
    dof = max(1, len(excess) - design.shape[1])
    fixed, per_tensor, per_dimension = map(float, solution)
    return Bias(fixed, per_tensor, per_dimension, float(np.sqrt((missed**2).sum() / dof)))


def _decoded(data: bytes | None) -> Bias | None:
    try:
        return None if data is None else msgspec.json.decode(data, type=Bias)
    except msgspec.MsgspecError:  # written by something else, or cut short
        return None
