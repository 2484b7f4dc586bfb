"""Measures the profiler's overhead on every `dur`, on this machine at this thread count.

Only whole µs of a body's run are subtracted from the kernel around it, and the profiler records
that run in the time of that kernel: so each run of a body adds more to it, which a Loop tells.

The profiler stamps the end of a kernel after it has built the strings of the event. So each `dur`
is too long by some µs, which grow with the kernel's tensors and with their dimensions. On a chain
of trivial nodes `sum(dur)` exceeds the time of an undisturbed run, minus an empty run, by the
overhead of the nodes. A least-squares fit over chains of several operators gives the coefficients.

A node's time is then its share of an undisturbed run: its kernel, and the 0.1 to 0.3 µs in which
the runtime dispatches it. The rest of a run is the time of an empty run (see `feeding`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tracer.containment import signals
from tracer.executors.onnxruntime import feeding, profile_events, sessions
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.model import encoded
from tracer.records import environment
from tracer.records.trace import Kernel
from tracer.support.files import cached_file, read_cached, store_in_cache
from tracer.support.measurements import elapsed_us
from tracer.support.temporary import TemporaryFolder
from tracer.support.types import FloatArray

_LENGTH = 60
_ROUNDS = 25
_WARMUP = 3
_ELEMENTS = 8

LOOP = "Loop"
_WEIGHT = "weight"
_LOOP_SIZE = 4, 2
"""Tensors of the Loop (trips, condition, state in and out), and their dimensions."""

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
    if signals.seconds_left() < _MEASURING_S and _decoded(read_cached(_file(threads))) is None:
        return None
    return measure(threads)


def _file(threads: int) -> Path:
    cpu = environment.cpu_model(), environment.cpu_flags()
    return cached_file("bias", (_METHOD, ort.__version__, threads, *cpu))


@cache
def measure(threads: int) -> Bias:
    """Returns the overhead on this machine; it is cached in the user's cache folder.

    The profiler works on the CPU, whatever provider runs the kernel: so it is measured there, where
    every node is a kernel, and none returns before it is done.

    A measurement takes about a second. The machine may be faster or slower in a later run:
    `tracer.analyzers.correction` scales the overhead so that the times of the run agree.
    """
    path = _file(threads)
    cached = _decoded(read_cached(path))
    if cached is not None:
        return cached
    bias = fit(*measure_excess(threads))
    bias = replace(bias, per_body=measure_excess_of_a_body(threads, bias.of_size))
    store_in_cache(path, msgspec.json.encode(bias))
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


def measure_excess(threads: int) -> tuple[list[tuple[int, int]], FloatArray]:
    """Returns (tensors, dimensions) of a node of each kind, and the µs its `dur` is too long.

    Every round runs each chain undisturbed, empty and profiled. Changes in the machine's speed
    affect all kinds of a round alike, so overheads are relative to the round; the result is the
    median over rounds.
    """
    with TemporaryFolder() as folder:
        chains = [_Chain.of(_chain(kind), kind.rank, threads, folder) for kind in CHAIN_KINDS]
        walls, sums = _time_chains(chains)
    overheads = (sums - walls)[_WARMUP:] / _LENGTH
    level = np.median(overheads, axis=1, keepdims=True)
    return [kind.size for kind in CHAIN_KINDS], np.median(overheads / level, axis=0) * np.median(
        level
    )


def measure_excess_of_a_body(threads: int, of_size: Callable[[int, int], float]) -> float:
    """Returns the µs that each run of a body adds to the time of the Loop outside its body.

    The truth is the time of a Loop beyond that of the nodes of its body in a row. `of_size` is the
    overhead of the Loop's own event, by its (tensors, dimensions).
    """
    with TemporaryFolder() as folder:
        loop = _Chain.of(_loop(), 1, threads, folder)
        row = _Chain.of(_unrolled(), 1, threads, folder)
        walls, sums = _time_chains([loop, row], LOOP)
    frames = float(np.median((walls[:, 0] - walls[:, 1])[_WARMUP:]))
    added = float(np.median(sums[_WARMUP:, 0])) - frames - of_size(*_LOOP_SIZE)
    return max(0.0, added / _LENGTH)


def _time_chains(
    chains: "Sequence[_Chain]", operator: str | None = None
) -> tuple[FloatArray, FloatArray]:
    """Returns (rounds × chains) undisturbed times without empty runs, and sums of self times, µs.

    The sums are those of all kernels, or of `operator` alone.
    """
    walls = np.array([[c.wall() for c in chains] for _ in range(_WARMUP + _ROUNDS)])
    return walls, np.array([c.profiled_sums(operator) for c in chains]).T


@dataclass(frozen=True, slots=True)
class ChainKind:
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


CHAIN_KINDS = tuple(
    ChainKind(operator, inputs, outputs, rank)
    for operator, inputs, outputs in (
        ("Identity", 1, 1), ("Neg", 1, 1), ("Add", 2, 1), ("Sum", 4, 1), ("Split", 1, 2),
    )
    for rank in (1, 4)
)  # fmt: skip


@dataclass
class _Chain:
    """Sessions on one chain: undisturbed, empty and profiled."""

    feeds: dict[str, Any]
    plain: Callable[[], object]
    empty: Callable[[], object]
    profiled: Any

    @classmethod
    def of(cls, proto: onnx.ModelProto, rank: int, threads: int, folder: Path) -> "_Chain":
        settings = OrtSettings(threads=threads, optimization="none")
        model = loading.from_proto(proto)
        feeds = {"x": np.ones(_shape(rank), np.float32)}
        factory = sessions.Factory(model, encoded(model.proto, model.name), settings)
        plain = factory.open()
        empty = feeding.empty_runner(model, feeds, plain.run(None, feeds), settings)
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
        table = profile_events.read_ended(self.profiled, labels)[1]
        named = [operator in (None, label.op_type) for label in labels.kernels]
        sums: FloatArray = table.self_us[:, named].sum(axis=1)
        return sums[1::2]


def _shape(rank: int) -> Sequence[int]:
    return [1] * (rank - 1) + [_ELEMENTS]


def _chain(kind: ChainKind, length: int = _LENGTH) -> onnx.ModelProto:
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
    return _chain_model(nodes, shape, f"t{length}", result)


def _unrolled() -> onnx.ModelProto:
    """Returns the nodes of the body of `_loop` as often in a row as it runs."""
    nodes = []
    for i in range(_LENGTH):
        read = f"t{i}" if i else "x"
        nodes.append(helper.make_node("MatMul", [read, _WEIGHT], [f"t{i + 1}"], f"body{i}"))
        nodes.append(helper.make_node("Identity", ["starts"], [f"goes_on{i}"], f"condition{i}"))
    starts = numpy_helper.from_array(np.array(True), "starts")
    return _chain_model(nodes, [_ELEMENTS], f"t{_LENGTH}", [_ELEMENTS], [starts, _weight()])


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
    return _chain_model([node], [_ELEMENTS], "y", [_ELEMENTS], [trips, starts, _weight()])


def _chain_model(
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
