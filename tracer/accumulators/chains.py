"""Fuses the nodes of quantised graphs: bytes in, bytes out, with the same bits as node by node.

A graph in QDQ form dequantises before every node and quantises after it:

    DequantizeLinear -> Conv -> Relu -> QuantizeLinear -> DequantizeLinear -> Add -> ...

A narrow sum takes the bytes before DequantizeLinear, and ends with QuantizeLinear. Element-wise
nodes in between are functions of one or two bytes, looked up in a table that the nodes themselves
compute. Nodes that only move elements move bytes. Observers see every node, so they are given the
graph as it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tracer import limits
from tracer.accumulators.engine.integer_arithmetic import BYTES, Bytes, Dequantize, Finish
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.nodes import ComputeSums
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import parallel, tensors
from tracer.interpreter.operators import Body, Kernel
from tracer.interpreter.plan import Plan, Task
from tracer.interpreter.values import Value
from tracer.support.types import Array

_QUANTIZED, _SCALE, _ZERO = range(3)
"""Inputs of QuantizeLinear and DequantizeLinear."""
OF_ONE = ("Abs", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
          "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu",
          "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh",
          "ThresholdedRelu")  # fmt: skip
OF_TWO = ("Add", "Sub", "Mul", "Div")
"""Operators that compute an element in the same way wherever it is."""
_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")

_BYTE_VALUES = 256
MEASURES = ("Shape", "Size")
MOVES = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather",
             "Expand", "Tile")  # fmt: skip
SUMS = ("Conv", "Gemm", "MatMul", "AveragePool", "GlobalAveragePool", "ReduceMean",
             "ReduceSum")  # fmt: skip
_OPERANDS = 2
_FOLDED = 1 << 16
"""Bytes of a constant that is kept for all runs, rather than computed in each."""


def fuse_plan(
    plan: Plan,
    scales: TensorScales,
    summings: Mapping[str, ComputeSums | None],
    runner: Callable[[str], SumRunner],
) -> tuple[Sequence[Task], Mapping[str, Array]]:
    """Returns the tasks of a plan with its chains fused, and the constants that they read.

    `summings` are the sums of narrow nodes by key, None for operands that are not bytes; `runner`
    returns the runner of a node during a run.
    """
    tasks = [step.task for step in plan.steps]
    folded = _fold_constants(tasks, plan.weights)
    wiring = Wiring(tasks, plan.outputs, scales, folded, summings)
    replaced: dict[str, Task] = {}
    gone: set[str] = set()
    for task in tasks:
        made, key, operator = None, task.nodes[0].key, _operator(task)
        if key in gone or key in replaced:
            continue
        if key in summings:
            summing = summings[key]
            if summing is not None and operator in SUMS:
                made = fused_sum(task, summing, partial(runner, key), wiring)
        elif operator in (*OF_ONE, *OF_TWO):
            made = fused_table(task, wiring)
        elif operator in MOVES:
            made = fused_move(task, wiring)
        elif operator in MEASURES:
            made = replace(task, reads=(wiring.bytes_before(task.reads[0]),)), ()  # as of floats
        if made is not None:
            chain, followers = made
            last = followers[-1] if followers else task
            replaced[last.nodes[0].key] = chain
            gone.update(each.nodes[0].key for each in (task, *followers[:-1]) if each is not last)
    fused = [replaced.get(s.nodes[0].key, s) for s in tasks if s.nodes[0].key not in gone]
    fused = [task for task in fused if task.writes[0] not in folded]
    readers = Counter(name for task in fused for name in task.captures)
    readers.update(plan.outputs)
    return [
        task
        for task in fused
        if task.nodes[0].op_type != "DequantizeLinear" or any(readers[name] for name in task.writes)
    ], folded


def _fold_constants(tasks: Sequence[Task], weights: Mapping[str, Array]) -> dict[str, Array]:
    """Small constants of DequantizeLinear.

    They are computed from the very arrays of a run, so that the tasks themselves keep them too.
    """
    known, folded = dict(weights), {}
    for task in tasks:
        operator = task.nodes[0].op_type
        if operator not in ("Constant", "DequantizeLinear") or task.kernel is None:
            continue
        if any(name and name not in known for name in task.reads):
            continue
        stored = [known.get(name) for name in task.reads]
        if sum(value.nbytes for value in stored[:1] if value is not None) <= _FOLDED:
            known[task.writes[0]] = apply(task, stored)
            if operator == "DequantizeLinear":
                folded[task.writes[0]] = known[task.writes[0]]
    return folded


@dataclass(frozen=True, slots=True)
class Ending:
    """The tasks after a sum, the last of which quantises, and what they do to its floats."""

    tasks: tuple[Task, ...]
    constants: tuple[list[Value], ...]
    bytes: Bytes

    def __call__(self, floats: Array) -> Array:
        """The bytes, one by one."""
        for task, constants in zip(self.tasks, self.constants, strict=True):
            floats = apply(task, [floats, *constants])
        return floats


def fused_sum(
    task: Task, summing: ComputeSums, runner: Callable[[], SumRunner], wiring: Wiring
) -> tuple[Task, tuple[Task, ...]]:
    """Returns the task that sums bytes, and the tasks that it replaces besides `task`."""
    ending = _ending(task, wiring)
    followers = () if ending is None else ending.tasks

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        sums = summing(inputs, runner())
        if ending is None:
            return (sums.output,)
        if isinstance(sums.restore, Dequantize) and sums.restore.dtype == np.float32:
            out = sums.compute(Finish(sums.restore, ending.bytes))
            if out is not None:
                return (out,)
        return (ending(sums.output),)

    operands = [wiring.bytes_before(name) for name in task.reads[:_OPERANDS]]
    reads = (*operands, *task.reads[_OPERANDS:])
    return chain(task, followers, kernel, reads), followers


def _ending(task: Task, wiring: Wiring) -> Ending | None:
    tasks, constants, last = [], [], task
    least, most = -np.inf, np.inf
    between = wiring.only_reader(task, "Relu", "Clip")
    if between is not None:
        known = wiring.constants(between, 1)
        if known is None or between.nodes[0].proto.attribute:
            return None
        limits = [0.0] if between.nodes[0].op_type == "Relu" else known
        least, most = (
            end if value is None else float(np.asarray(value).reshape(()))
            for value, end in zip([*limits, None, None][:2], (least, most), strict=True)
        )
        tasks, constants, last = [between], [known], between
    quantizer = wiring.only_reader(last, "QuantizeLinear")
    scale = None if quantizer is None else wiring.scale(quantizer)
    known = None if quantizer is None else wiring.constants(quantizer, 1)
    if quantizer is None or scale is None or known is None:
        return None
    made = Bytes(least, most, float(scale.scale), scale.zero, scale.dtype)
    return Ending((*tasks, quantizer), (*constants, known), made)


def fused_table(task: Task, wiring: Wiring) -> tuple[Task, tuple[Task, ...]] | None:
    """Returns the task that looks up bytes, and the tasks that it replaces besides `task`."""
    sources = [wiring.source(name) for name in task.reads]
    width = _width(task, wiring)
    two = width is None and task.nodes[0].op_type in OF_TWO and None not in sources
    if not two and (width is None or sources[0] is None):
        return None
    followers = _followers(task, wiring, 1 if width is None else width, two)
    if not followers:
        return None
    found = [each for each in (sources if two else sources[:1]) if each is not None]
    constants = [[] if two else wiring.constants(task, 1)]
    constants += [wiring.constants(follower, 1) for follower in followers]

    def computed(*values: Array) -> Array:
        for each, known in zip((task, *followers), constants, strict=True):
            values = (apply(each, [*values, *(known or ())]),)
        return values[0]

    rank = max((value.ndim for known in constants for value in known or ()
                if value is not None), default=0)  # fmt: skip
    columns = max(_width(each, wiring) or 1 for each in (task, *followers))
    reads = tuple(source.reads[0] for source, _ in found)
    return chain(task, followers, _lookup(found, columns, rank, computed), reads), followers


def _followers(task: Task, wiring: Wiring, width: int, two: bool) -> tuple[Task, ...]:
    """The element-wise tasks after `task`, up to the last one that quantises.

    Their constants may differ for as many columns as those of `task`, `width`.
    """
    found: list[Task] = []
    end, last = 0, task
    while (following := wiring.only_reader(last, *OF_ONE, *OF_TWO, *_CONVERSIONS)) is not None:
        needed = _width(following, wiring)
        operator = _operator(following)
        unknown = operator in _CONVERSIONS and wiring.scale(following) is None
        if needed is None or unknown or (needed > 1 and (two or width not in (1, needed))):
            break
        width = max(width, needed)
        found.append(following)
        end = len(found) if operator == "QuantizeLinear" else end
        last = following
    return tuple(found[:end])


def _width(task: Task, wiring: Wiring) -> int | None:
    """The columns, along the last axis, for which the constants of a task differ.

    1 if they are single numbers; None if they are not stored, or differ along other axes.
    """
    known = wiring.constants(task, 1)
    if known is None or (task.nodes[0].op_type in OF_TWO and len(known) != 1):
        return None
    sizes = {value.size for value in known if value is not None and value.size > 1}
    rows = all(value.shape[-1] == value.size for value in known
               if value is not None and value.size > 1)  # fmt: skip
    return max(sizes, default=1) if rows and len(sizes) < 2 else None


def _lookup(
    sources: Sequence[tuple[Task, Scale]], width: int, rank: int, computed: Callable[..., Array]
) -> Kernel:
    """Looks up a byte, or two; constants of `rank` may differ for `width` columns of one byte."""
    tables: list[Array] = []
    is_pair = len(sources) > 1

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        x, *others = np.broadcast_arrays(*inputs) if is_pair else inputs
        if x.ndim < rank or (width > 1 and x.shape[-1] != width):  # the constants broadcast
            return (computed(*map(_floats, sources, (x, *others))),)
        if not tables:
            rows, *columns = (_floats(source, every_byte(source[1].dtype)) for source in sources)
            count = _BYTE_VALUES if is_pair else width
            table = computed(np.repeat(rows[:, None], count, 1), *(each[None] for each in columns))
            tables.append(table.reshape(_BYTE_VALUES, count))
        return (looked_up(tables[0], x, *others),)

    return kernel


def looked_up(table: Array, x: Array, other: Array | None = None) -> Array:
    """Bytes of a `table` (256, width) by `x`, and by `other` or the last axis of `x`."""
    limits.allow(x.shape, table.dtype)
    out = tensors.empty(x.shape, table.dtype)
    kernels, table = loaded("elementwise"), np.ascontiguousarray(table).view(np.uint8)
    flat = [np.ascontiguousarray(each).reshape(-1).view(np.uint8)
            for each in (x, other, out) if each is not None]  # fmt: skip
    width = table.shape[1] if other is None else 1
    parts = parallel.pieces(out.size // width, max(parallel.BYTES_BLOCK // width, 1))

    def block(index: int) -> None:
        part = slice(parts[index].start * width, parts[index].stop * width)
        pieces = [each[part] for each in flat]
        kernels.by_pair(table, *pieces) if other is not None else kernels.by_column(table, *pieces)

    parallel.run_blocks(len(parts), block)
    return out


def _floats(source: tuple[Task, Scale], x: Array) -> Array:
    task, scale = source
    return apply(task, [x, scale.scale, np.asarray(scale.zero, scale.dtype)])


def every_byte(dtype: np.dtype[Any]) -> Array:
    """Every byte of a type, in the order of its bits."""
    return np.arange(_BYTE_VALUES, dtype=np.uint8).view(dtype)


def fused_move(task: Task, wiring: Wiring) -> tuple[Task, tuple[Task, ...]] | None:
    """Returns the task that moves bytes, and the QuantizeLinear that it replaces besides `task`."""
    found, quantizer = wiring.source(task.reads[0]), wiring.only_reader(task, "QuantizeLinear")
    if found is None or quantizer is None or wiring.scale(quantizer) is None:
        return None
    dequantizer, scale = found
    before, after = wiring.constants(dequantizer, 1), wiring.constants(quantizer, 1)
    every = every_byte(scale.dtype)
    table = apply(quantizer, [apply(dequantizer, [every, *(before or ())]), *(after or ())])
    is_same = table.dtype == every.dtype and np.array_equal(table, every)

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        x, *others = inputs
        moved = apply(task, [x, *others])
        return (moved if is_same else looked_up(table[:, None], moved),)

    reads = (dequantizer.reads[0], *task.reads[1:])
    return chain(task, (quantizer,), kernel, reads), (quantizer,)


@dataclass(frozen=True, slots=True)
class Scale:
    """Bytes of a type are (floats / scale) + zero; `scale` is float32."""

    scale: Array
    zero: int
    dtype: np.dtype[Any]


class Wiring:
    """The values of the main graph by name; `narrow` are the keys of nodes whose sums count."""

    def __init__(
        self, tasks: Sequence[Task], outputs: Sequence[str], scales: TensorScales,
        folded: Mapping[str, Array], narrow: Collection[str],
    ) -> None:  # fmt: skip
        self._scales = scales
        self._narrow = narrow
        self._folded = folded
        self._outputs = set(outputs)
        self._computed_by = {name: task for task in tasks for name in task.writes}
        self._readers: dict[str, list[Task]] = defaultdict(list)
        for task in tasks:
            for name in task.captures:
                self._readers[name].append(task)

    def computed_by(self, name: str, *operators: str) -> Task | None:
        """The task that computes a value, if its operator is one of these."""
        task = self._computed_by.get(name)
        return task if task is not None and _operator(task) in operators else None

    def only_reader(self, task: Task, *operators: str) -> Task | None:
        """The one task that reads the one output of `task`, if its operator is one of these.

        A narrow sum is none of them: its statistics are of the values of a run.
        """
        name, readers = task.writes[0], self._readers[task.writes[0]]
        if len(task.writes) > 1 or len(readers) != 1 or name in self._outputs:
            return None
        reader = readers[0]
        if reader.nodes[0].key in self._narrow:
            return None
        first = reader.reads[0] == name and not reader.bodies
        return reader if first and _operator(reader) in operators else None

    def constants(self, task: Task, first: int) -> list[Value] | None:
        """The inputs of a task from the `first` on; None unless all are stored."""
        names = task.reads[first:]
        found = [self._folded.get(name, self._scales.value(name, task.nodes[0].scope))
                 if name else None for name in names]  # fmt: skip
        missing = any(name and value is None for name, value in zip(names, found, strict=True))
        return None if missing else found

    def source(self, name: str) -> tuple[Task, Scale] | None:
        """The DequantizeLinear that makes floats of bytes, all with one scale."""
        task = self.computed_by(name, "DequantizeLinear")
        scale = None if task is None else self.scale(task)
        return None if task is None or scale is None else (task, scale)

    def bytes_before(self, name: str) -> str:
        """The name of the bytes that a value is made of; the name itself if there are none."""
        task = self.computed_by(name, "DequantizeLinear")
        stored = None if task is None else self.constants(task, _QUANTIZED)
        is_stored = stored is not None and stored[_QUANTIZED].dtype in BYTES
        found = task is not None and (is_stored or self.scale(task) is not None)
        return task.reads[_QUANTIZED] if found and task is not None else name

    def scale(self, task: Task) -> Scale | None:
        """The scale of QuantizeLinear or DequantizeLinear, if it is one number, stored."""
        constants = self.constants(task, _SCALE)
        attributes = {a.name for a in task.nodes[0].proto.attribute}
        if constants is None or len(constants) < _ZERO or attributes - {"axis"}:
            return None
        scale, zero = constants[0], constants[1]
        single = scale.size == 1 and zero is not None and zero.size == 1
        if not single or scale.dtype != np.float32 or zero.dtype not in BYTES or not scale > 0:
            return None
        return Scale(scale.reshape(()), int(zero.reshape(())), zero.dtype)


def _operator(task: Task) -> str:
    """The operator's name; "" for one that is not ONNX's, or that a function body computes."""
    return "" if task.kernel is None else task.nodes[0].standard_type


def chain(task: Task, followers: Sequence[Task], kernel: Kernel, reads: Sequence[str]) -> Task:
    """Returns the task that computes what `task` and its followers compute one after the other."""
    nodes = (*task.nodes, *(node for follower in followers for node in follower.nodes))
    writes = followers[-1].writes if followers else task.writes
    return replace(task, nodes=nodes, kernel=kernel, reads=tuple(reads), writes=writes)


def apply(task: Task, inputs: Sequence[Value]) -> Array:
    """The first output of a task without bodies."""
    assert task.kernel is not None
    with np.errstate(all="ignore"):
        return np.asarray(task.kernel(inputs, {})[0])
