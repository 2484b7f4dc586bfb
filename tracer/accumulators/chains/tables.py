"""Element-wise nodes between bytes, looked up in a table that the nodes themselves compute."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracer import limits
from tracer.accumulators.chains.wiring import Scale, Wiring, apply, chain
from tracer.accumulators.kernels import loaded
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.interpreter.operators import Body
from tracer.interpreter.plan import Task
from tracer.interpreter.values import Value
from tracer.support.types import Array

OF_ONE = ("Abs", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
          "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu",
          "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh",
          "ThresholdedRelu")  # fmt: skip
OF_TWO = ("Add", "Sub", "Mul", "Div")
"""Operators that compute an element in the same way wherever it is."""
_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")

_BYTES = 256


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
    if two:
        kernel = _of_two(found, rank, computed)
    else:
        every = [_width(each, wiring) or 1 for each in (task, *followers)]
        kernel = _of_one(found[0], max(every), rank, computed)
    reads = tuple(source.reads[0] for source, _ in found)
    return chain(task, followers, kernel, reads), followers


def _followers(task: Task, wiring: Wiring, width: int, two: bool) -> tuple[Task, ...]:
    """The element-wise tasks after `task`, up to the last one that quantises.

    Their constants may differ for as many columns as those of `task`, `width`.
    """
    found: list[Task] = []
    end, last = 0, task
    while (following := wiring.only_reader(last, *OF_ONE, *OF_TWO, *_CONVERSIONS)) is not None:
        needed = _width(following, wiring)
        unknown = wiring.is_plain(following, *_CONVERSIONS) and wiring.scale(following) is None
        if needed is None or unknown or (needed > 1 and (two or width not in (1, needed))):
            break
        width = max(width, needed)
        found.append(following)
        end = len(found) if wiring.is_plain(following, "QuantizeLinear") else end
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


_Kernel = Callable[[Sequence[Value], Mapping[str, Body]], Sequence[Value]]


def _of_one(
    source: tuple[Task, Scale], width: int, rank: int, computed: Callable[[Array], Array]
) -> _Kernel:
    """Looks up a byte; constants of `rank` may differ for `width` columns, the last axis."""
    tables: list[Array] = []

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        x = inputs[0]
        if x.ndim < rank or (width > 1 and x.shape[-1] != width):  # the constants broadcast
            return (computed(_floats(source, x)),)
        if not tables:
            every = _floats(source, every_byte(source[1].dtype))
            tables.append(computed(np.repeat(every[:, None], width, 1)).reshape(_BYTES, width))
        return (looked_up(tables[0], x),)

    return kernel


def _of_two(
    sources: Sequence[tuple[Task, Scale]], rank: int, computed: Callable[[Array, Array], Array]
) -> _Kernel:
    """Looks up two bytes; constants after them have a `rank`."""
    tables: list[Array] = []

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        left, right = np.broadcast_arrays(*inputs)
        if left.ndim < rank:
            return (computed(_floats(sources[0], left), _floats(sources[1], right)),)
        if not tables:
            rows, columns = (_floats(source, every_byte(source[1].dtype)) for source in sources)
            pairs = computed(np.repeat(rows[:, None], _BYTES, 1), columns[None])
            tables.append(pairs.reshape(_BYTES, _BYTES))
        return (looked_up(tables[0], left, right),)

    return kernel


def looked_up(table: Array, x: Array, other: Array | None = None) -> Array:
    """Bytes of a `table` (256, width) by `x`, and by `other` or the last axis of `x`."""
    limits.allow(x.shape, table.dtype)
    out = buffer_pool.empty(x.shape, table.dtype)
    kernels, table = loaded("tables"), np.ascontiguousarray(table).view(np.uint8)
    flat = [_flat(each) for each in (x, other, out) if each is not None]
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
    return np.arange(_BYTES, dtype=np.uint8).view(dtype)


def _flat(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
