"""Runs chains of trivial nodes with and without the profiler, to measure its overhead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tracer.executors.onnxruntime import empty_run, profile_events, self_times, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.encoding import encoded
from tracer.support.temporary import TemporaryFolder
from tracer.support.timing import elapsed_us
from tracer.support.types import FloatArray

_LENGTH = 60
_ROUNDS = 25
_WARMUP = 3
_ELEMENTS = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """A trivial operator with numbers of inputs and outputs, each of `rank` dimensions."""

    operator: str
    inputs: int
    outputs: int
    rank: int

    @property
    def size(self) -> tuple[int, int]:
        """Tensors of a node, and their dimensions in total."""
        tensors = self.inputs + self.outputs
        return tensors, tensors * self.rank


KINDS = tuple(
    Kind(operator, inputs, outputs, rank)
    for operator, inputs, outputs in (
        ("Identity", 1, 1), ("Neg", 1, 1), ("Add", 2, 1), ("Sum", 4, 1), ("Split", 1, 2),
    )
    for rank in (1, 4)
)  # fmt: skip


def excess(threads: int) -> tuple[list[tuple[int, int]], FloatArray]:
    """Returns (tensors, dimensions) of a node of each kind, and the µs its `dur` is too long.

    Every round runs each chain undisturbed, empty and profiled. Changes in the machine's speed
    affect all kinds of a round alike, so overheads are relative to the round; the result is the
    median over rounds.
    """
    settings = OrtSettings(threads=threads, optimization="none")
    with TemporaryFolder() as folder:
        chains = [_Chain.of(kind, settings, folder) for kind in KINDS]
        walls = np.array([[c.wall() for c in chains] for _ in range(_WARMUP + _ROUNDS)])
        sums = np.array([c.profiled_sums() for c in chains]).T
    overheads = (sums - walls)[_WARMUP:] / _LENGTH
    level = np.median(overheads, axis=1, keepdims=True)
    return [kind.size for kind in KINDS], np.median(overheads / level, axis=0) * np.median(level)


@dataclass
class _Chain:
    """Sessions on one chain: undisturbed, empty and profiled."""

    feeds: dict[str, Any]
    plain: Callable[[], object]
    empty: Callable[[], object]
    profiled: Any

    @classmethod
    def of(cls, kind: Kind, settings: OrtSettings, folder: Path) -> _Chain:
        model = loading.from_proto(_proto(kind))
        feeds = {"x": np.ones(_shape(kind.rank), np.float32)}
        factory = sessions.Factory(model, encoded(model.proto, model.name), settings)
        plain = factory.open()
        empty = empty_run.runner(model, feeds, plain.run(None, feeds), settings)
        assert empty is not None
        profiled = factory.open(profile=folder / f"{kind.operator}{kind.rank}")
        return cls(feeds, lambda: plain.run(None, feeds), empty, profiled)

    def wall(self) -> float:
        """Returns µs of one undisturbed run minus an empty run; then makes two profiled runs."""
        for run in (self.plain, self.empty):
            run()  # fills the caches, which the chain before has used
        between = elapsed_us(self.plain) - elapsed_us(self.empty)
        self.profiled.run(None, self.feeds)
        self.profiled.run(None, self.feeds)
        return between

    def profiled_sums(self) -> FloatArray:
        """Returns the sum of `dur` of the second profiled run of each pair."""
        labels = profile_events.Labels()
        path = Path(self.profiled.end_profiling())
        recorded = profile_events.read(path, labels)
        path.unlink()
        sums: FloatArray = self_times.tabulate(recorded, len(labels.kernels)).self_us.sum(axis=1)
        return sums[1::2]


def _shape(rank: int) -> Sequence[int]:
    return [1] * (rank - 1) + [_ELEMENTS]


def _proto(kind: Kind) -> onnx.ModelProto:
    """Returns a chain of nodes; nodes with several outputs all read the graph's input."""
    nodes = []
    for i in range(_LENGTH):
        read = f"t{i}" if i and kind.outputs == 1 else "x"
        outputs = [f"t{i + 1}", *(f"t{i + 1}_{k}" for k in range(1, kind.outputs))]
        node = helper.make_node(kind.operator, [read] * kind.inputs, outputs, f"node{i}")
        if kind.operator == "Split":
            node.attribute.append(helper.make_attribute("axis", kind.rank - 1))
        nodes.append(node)
    shape = list(_shape(kind.rank))
    value = helper.make_tensor_value_info
    result = [*shape[:-1], _ELEMENTS // kind.outputs]
    graph = helper.make_graph(
        nodes,
        "chain",
        [value("x", TensorProto.FLOAT, shape)],
        [value(f"t{_LENGTH}", TensorProto.FLOAT, result)],
    )
    # These versions are old enough for every onnxruntime in use; it refuses newer versions.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
