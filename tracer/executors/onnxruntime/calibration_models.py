"""Chains of trivial nodes, run with the profiler and without: how much too long a `dur` is."""

from __future__ import annotations

import tempfile
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
from tracer.support.timing import elapsed_us
from tracer.support.types import FloatArray

_LENGTH = 60
_ROUNDS = 25
_WARMUP = 3
_ELEMENTS = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """A trivial operator with so many tensors in and out, each of `rank` dimensions."""

    operator: str
    inputs: int
    outputs: int
    rank: int

    @property
    def size(self) -> tuple[int, int]:
        """Tensors of a node, and their dimensions."""
        tensors = self.inputs + self.outputs
        return tensors, tensors * self.rank


KINDS = tuple(
    Kind(operator, inputs, outputs, rank)
    for operator, inputs, outputs in (
        ("Identity", 1, 1), ("Neg", 1, 1), ("Add", 2, 1), ("Sum", 4, 1), ("Split", 1, 2),
    )
    for rank in (1, 4)
)  # fmt: skip


def excess(threads: int, provider: str) -> tuple[list[tuple[int, int]], FloatArray]:
    """(tensors, dimensions) of each kind's node, and µs by which its `dur` is too long.

    Every round runs each chain undisturbed, empty and profiled. What the machine does meanwhile
    meets all kinds alike, so each is measured by the round it is in, and medians over the rounds
    are kept.
    """
    options = OrtSettings(threads=threads, optimization="none", provider=provider)
    with tempfile.TemporaryDirectory(prefix="tracer-") as folder:
        chains = [_Chain.of(kind, options, Path(folder)) for kind in KINDS]
        walls = np.array([[c.wall() for c in chains] for _ in range(_WARMUP + _ROUNDS)])
        sums = np.array([c.profiled_sums() for c in chains]).T
    found = (sums - walls)[_WARMUP:] / _LENGTH
    level = np.median(found, axis=1, keepdims=True)
    return [kind.size for kind in KINDS], np.median(found / level, axis=0) * np.median(level)


@dataclass
class _Chain:
    """Sessions on one chain; one of them profiled."""

    feeds: dict[str, Any]
    plain: Callable[[], object]
    empty: Callable[[], object]
    profiled: Any

    @classmethod
    def of(cls, kind: Kind, options: OrtSettings, folder: Path) -> _Chain:
        model = loading.from_proto(_proto(kind))
        feeds = {"x": np.ones(_shape(kind.rank), np.float32)}
        factory = sessions.Factory(model, model.proto.SerializeToString(), options)
        plain = factory.open()
        empty = empty_run.runner(model, feeds, plain.run(None, feeds), options)
        assert empty is not None
        profiled = factory.open(profile=folder / f"{kind.operator}{kind.rank}")
        return cls(feeds, lambda: plain.run(None, feeds), empty, profiled)

    def wall(self) -> float:
        """µs of one undisturbed run, less that of an empty one; then a profiled run."""
        for run in (self.plain, self.empty):
            run()  # what the chain before left in the caches is not this one's
        between = elapsed_us(self.plain) - elapsed_us(self.empty)
        self.profiled.run(None, self.feeds)
        self.profiled.run(None, self.feeds)
        return between

    def profiled_sums(self) -> FloatArray:
        """Sum of `dur` of every other profiled run, the second of each pair."""
        labels = profile_events.Labels()
        path = Path(self.profiled.end_profiling())
        recorded = profile_events.read(path, labels)
        path.unlink()
        sums: FloatArray = self_times.tabulate(recorded, len(labels.seen)).self_us.sum(axis=1)
        return sums[1::2]


def _shape(rank: int) -> Sequence[int]:
    return [1] * (rank - 1) + [_ELEMENTS]


def _proto(kind: Kind) -> onnx.ModelProto:
    """Nodes one after the other; where there are several outputs, each reads the input anew."""
    nodes = []
    for place in range(_LENGTH):
        read = f"t{place}" if place and kind.outputs == 1 else "x"
        made = [f"t{place + 1}", *(f"t{place + 1}_{i}" for i in range(1, kind.outputs))]
        node = helper.make_node(kind.operator, [read] * kind.inputs, made, f"node{place}")
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
    # Old enough for every onnxruntime in use: a version newer than it knows would be refused.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
