"""Runs chains of trivial nodes with and without the profiler, to measure its overhead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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

LOOP = "Loop"
_WEIGHT = "weight"
_LOOP_SIZE = 4, 2
"""Tensors of the Loop (trips, condition, state in and out), and their dimensions."""


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
    with TemporaryFolder() as folder:
        chains = [_Chain.of(_proto(kind), kind.rank, threads, folder) for kind in KINDS]
        walls, sums = _measured(chains)
    overheads = (sums - walls)[_WARMUP:] / _LENGTH
    level = np.median(overheads, axis=1, keepdims=True)
    return [kind.size for kind in KINDS], np.median(overheads / level, axis=0) * np.median(level)


def excess_of_a_body(threads: int, of_size: Callable[[int, int], float]) -> float:
    """Returns the µs that each run of a body adds to the time of the Loop outside its body.

    The truth is the time of a Loop beyond that of the nodes of its body in a row. `of_size` is the
    overhead of the Loop's own event, by its (tensors, dimensions).
    """
    with TemporaryFolder() as folder:
        loop = _Chain.of(_loop(), 1, threads, folder)
        row = _Chain.of(_unrolled(), 1, threads, folder)
        walls, sums = _measured([loop, row], LOOP)
    frames = float(np.median((walls[:, 0] - walls[:, 1])[_WARMUP:]))
    added = float(np.median(sums[_WARMUP:, 0])) - frames - of_size(*_LOOP_SIZE)
    return max(0.0, added / _LENGTH)


def _measured(
    chains: Sequence[_Chain], operator: str | None = None
) -> tuple[FloatArray, FloatArray]:
    """Returns (rounds × chains) undisturbed times without empty runs, and sums of self times, µs.

    The sums are those of all kernels, or of `operator` alone.
    """
    walls = np.array([[c.wall() for c in chains] for _ in range(_WARMUP + _ROUNDS)])
    return walls, np.array([c.profiled_sums(operator) for c in chains]).T


@dataclass
class _Chain:
    """Sessions on one chain: undisturbed, empty and profiled."""

    feeds: dict[str, Any]
    plain: Callable[[], object]
    empty: Callable[[], object]
    profiled: Any

    @classmethod
    def of(cls, proto: onnx.ModelProto, rank: int, threads: int, folder: Path) -> _Chain:
        settings = OrtSettings(threads=threads, optimization="none")
        model = loading.from_proto(proto)
        feeds = {"x": np.ones(_shape(rank), np.float32)}
        factory = sessions.Factory(model, encoded(model.proto, model.name), settings)
        plain = factory.open()
        empty = empty_run.runner(model, feeds, plain.run(None, feeds), settings)
        assert empty is not None
        profiled = factory.open(profile=folder / "chain")
        return cls(feeds, lambda: plain.run(None, feeds), empty, profiled)

    def wall(self) -> float:
        """Returns µs of one undisturbed run minus an empty run; then makes two profiled runs."""
        for run in (self.plain, self.empty):
            run()  # fills the caches, which the chain before has used
        between = elapsed_us(self.plain) - elapsed_us(self.empty)
        self.profiled.run(None, self.feeds)
        self.profiled.run(None, self.feeds)
        return between

    def profiled_sums(self, operator: str | None) -> FloatArray:
        """Returns the sum of the self times of the second profiled run of each pair."""
        labels = profile_events.Labels()
        path = Path(self.profiled.end_profiling())
        recorded = profile_events.read(path, labels)
        path.unlink()
        own = self_times.tabulate(recorded, len(labels.kernels)).self_us
        named = [operator in (None, label.op_type) for label in labels.kernels]
        sums: FloatArray = own[:, named].sum(axis=1)
        return sums[1::2]


def _shape(rank: int) -> Sequence[int]:
    return [1] * (rank - 1) + [_ELEMENTS]


def _proto(kind: Kind, length: int = _LENGTH) -> onnx.ModelProto:
    """Returns a chain of nodes; nodes with several outputs all read the graph's input."""
    nodes = []
    for i in range(length):
        read = f"t{i}" if i and kind.outputs == 1 else "x"
        outputs = [f"t{i + 1}", *(f"t{i + 1}_{k}" for k in range(1, kind.outputs))]
        node = helper.make_node(kind.operator, [read] * kind.inputs, outputs, f"node{i}")
        if kind.operator == "Split":
            node.attribute.append(helper.make_attribute("axis", kind.rank - 1))
        nodes.append(node)
    shape = list(_shape(kind.rank))
    result = [*shape[:-1], _ELEMENTS // kind.outputs]
    return _model(nodes, shape, f"t{length}", result)


def _unrolled() -> onnx.ModelProto:
    """Returns the nodes of the body of `_loop` as often in a row as it runs."""
    nodes = []
    for i in range(_LENGTH):
        read = f"t{i}" if i else "x"
        nodes.append(helper.make_node("MatMul", [read, _WEIGHT], [f"t{i + 1}"], f"body{i}"))
        nodes.append(helper.make_node("Identity", ["starts"], [f"goes_on{i}"], f"condition{i}"))
    starts = numpy_helper.from_array(np.array(True), "starts")
    return _model(nodes, [_ELEMENTS], f"t{_LENGTH}", [_ELEMENTS], [starts, _weight()])


def _weight() -> onnx.TensorProto:
    return numpy_helper.from_array(np.eye(_ELEMENTS, dtype=np.float32), _WEIGHT)


def _loop() -> onnx.ModelProto:
    """Returns a Loop of `_LENGTH` trips, with a product in its body: most bodies have one."""
    value, flag = helper.make_tensor_value_info, TensorProto.BOOL
    state = [value(name, TensorProto.FLOAT, [_ELEMENTS]) for name in ("state", "next")]
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", _WEIGHT], ["next"], "body"),
            helper.make_node("Identity", ["going"], ["goes_on"], "condition"),
        ],
        "body",
        [value("trip", TensorProto.INT64, []), value("going", flag, []), state[0]],
        [value("goes_on", flag, []), state[1]],
    )
    trips = numpy_helper.from_array(np.array(_LENGTH), "trips")
    starts = numpy_helper.from_array(np.array(True), "starts")
    node = helper.make_node(LOOP, ["trips", "starts", "x"], ["y"], "loop", body=body)
    return _model([node], [_ELEMENTS], "y", [_ELEMENTS], [trips, starts, _weight()])


def _model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    output: str,
    result: Sequence[int],
    weights: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "chain",
        [value("x", TensorProto.FLOAT, shape)],
        [value(output, TensorProto.FLOAT, result)],
        weights,
    )
    # These versions are old enough for every onnxruntime in use; it refuses newer versions.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
