"""What onnxruntime's profiler adds to every `dur`, measured on this machine at this thread count.

The end of a kernel is stamped after the strings of its event are built, so each `dur` is too long
by some µs, the more the more tensors the kernel has. On chains of trivial nodes, `sum(dur)` grows
faster with the length than the time of an uninstrumented run does: the difference of the slopes
is the addition for one node. Chains of one and of two inputs give it as a line in the tensors.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.executors.onnxruntime import events, nesting, sessions
from tracer.executors.onnxruntime.options import Options

if TYPE_CHECKING:
    import onnx

    from tracer.trace import Kernel

_LENGTHS = (20, 120)
_RUNS = 31
_WARMUP = 5
_OPERATORS = {"Neg": 1, "Add": 2}
"""Trivial operators, and how many inputs they have; the output is one more tensor."""


@dataclass(frozen=True, slots=True)
class Bias:
    """µs added to the `dur` of one call of a kernel: `fixed + per_tensor × tensors`."""

    fixed: float
    per_tensor: float

    def of(self, kernel: Kernel) -> float:
        """The addition for one kernel; never negative, whatever the noise of the fit."""
        tensors = len(kernel.input_types) + len(kernel.output_types)
        return max(0.0, self.fixed + self.per_tensor * tensors)


@cache
def measure(threads: int, provider: str) -> Bias:
    """Fit the bias; takes a fraction of a second and is done once a process."""
    import tempfile

    options = Options(threads=threads, optimization="none", provider=provider)
    with tempfile.TemporaryDirectory(prefix="tracer-") as folder:
        slopes = {
            inputs + 1: _slope(operator, inputs, options, Path(folder))
            for operator, inputs in _OPERATORS.items()
        }
    (few, low), (many, high) = sorted(slopes.items())
    per_tensor = (high - low) / (many - few)
    return Bias(fixed=low - per_tensor * few, per_tensor=per_tensor)


def _slope(operator: str, inputs: int, options: Options, folder: Path) -> float:
    """Growth of sum(dur) less the growth of the uninstrumented wall, per node."""
    short, long = (_excess(operator, inputs, length, options, folder) for length in _LENGTHS)
    return (long - short) / (_LENGTHS[1] - _LENGTHS[0])


def _excess(operator: str, inputs: int, length: int, options: Options, folder: Path) -> float:
    """Median sum(dur) less median wall of a chain, µs."""
    import numpy as np

    from tracer import loading

    model = loading.from_proto(_chain(operator, inputs, length))
    factory = sessions.Factory(model, model.proto.SerializeToString(), options)
    feeds = {"x": np.ones(8, np.float32)}
    wall = _walls(factory.open(), feeds)[_WARMUP:]
    profiled = factory.open(profile=folder / f"{operator}{length}")
    _walls(profiled, feeds)
    labels = events.Labels()
    recorded = events.read(Path(profiled.end_profiling()), labels)
    table = nesting.tabulate(recorded, len(labels.seen))
    sums = table.self_us.sum(axis=1)[_WARMUP:]
    return float(np.median(sums)) - statistics.median(wall)


def _walls(session: Any, feeds: dict[str, Any]) -> Sequence[float]:
    """µs of each of a few runs."""
    walls = []
    for _ in range(_RUNS + _WARMUP):
        start = time.perf_counter_ns()
        session.run(None, feeds)
        walls.append((time.perf_counter_ns() - start) / 1e3)
    return walls


def _chain(operator: str, inputs: int, length: int) -> onnx.ModelProto:
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node(operator, [f"t{i}" if i else "x"] * inputs, [f"t{i + 1}"], f"node{i}")
        for i in range(length)
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "chain",
        [value("x", TensorProto.FLOAT, [8])],
        [value(f"t{length}", TensorProto.FLOAT, [8])],
    )
    # Old enough for every onnxruntime in use: a version newer than it knows would be refused.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
