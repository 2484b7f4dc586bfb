"""Element-wise nodes between bytes, looked up in a table that the nodes themselves compute."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracer import limits
from tracer.accumulators.chains.wiring import Scale, Wiring, apply, chain
from tracer.accumulators.kernels import loaded
from tracer.interpreter.binding import Body
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.interpreter.plan import Task
from tracer.interpreter.values import Value
from tracer.support.types import Array

OF_ONE = ("Relu", "Clip", "Abs", "Neg")
OF_TWO = ("Add", "Sub", "Mul", "Div")
"""Operators that compute an element in the same way wherever it is."""

_BYTES = 256


def fused_table(task: Task, wiring: Wiring) -> tuple[Task, tuple[Task, ...]] | None:
    """Returns the task that looks up bytes, and the tasks that it replaces besides `task`."""
    sources = [wiring.source(name) for name in task.reads]
    known = wiring.constants(task, 1)
    two = known is None and task.nodes[0].op_type in OF_TWO and None not in sources
    if not two and (known is None or sources[0] is None or any(v is None for v in known)):
        return None
    followers = _followers(task, wiring)
    if followers is None:
        return None
    found = [each for each in (sources if two else sources[:1]) if each is not None]
    constants = [] if two else known

    def computed(*floats: Array) -> Array:
        out = apply(task, [*floats, *(constants or ())])
        for follower in followers:
            out = apply(follower, [out, *(wiring.constants(follower, 1) or ())])
        return out

    if two:
        kernel = _of_two(found, computed)
    else:
        widths = {value.shape[-1] for value in known or () if value.ndim and value.size > 1}
        flat = all(value.size == value.shape[-1] for value in known or () if value.size > 1)
        if len(widths) > 1 or not flat:
            return None
        kernel = _of_one(found[0], widths.pop() if widths else 1, computed)
    reads = tuple(source.reads[0] for source, _ in found)
    return chain(task, followers, kernel, reads), followers


def _followers(task: Task, wiring: Wiring) -> tuple[Task, ...] | None:
    """The element-wise tasks after `task`, up to the one that quantises."""
    following = wiring.only_reader(task, *OF_ONE, "QuantizeLinear")
    if following is None or wiring.constants(following, 1) is None:
        return None
    if following.nodes[0].op_type == "QuantizeLinear":
        return None if wiring.scale(following) is None else (following,)
    rest = _followers(following, wiring)
    return None if rest is None else (following, *rest)


_Kernel = Callable[[Sequence[Value], Mapping[str, Body]], Sequence[Value]]


def _of_one(source: tuple[Task, Scale], width: int, computed: Callable[[Array], Array]) -> _Kernel:
    """Looks up a byte; constants may differ for `width` columns, which are the last axis."""
    tables: list[Array] = []

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        x = inputs[0]
        if width > 1 and (not x.ndim or x.shape[-1] != width):  # the constants broadcast
            return (computed(_floats(source, x)),)
        if not tables:
            every = _floats(source, every_byte(source[1].dtype))
            tables.append(computed(np.repeat(every[:, None], width, axis=1)))
        return (looked_up(tables[0], x),)

    return kernel


def _of_two(
    sources: Sequence[tuple[Task, Scale]], computed: Callable[[Array, Array], Array]
) -> _Kernel:
    """Looks up two bytes."""
    tables: list[Array] = []

    def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        if not tables:
            left, right = (_floats(source, every_byte(source[1].dtype)) for source in sources)
            tables.append(computed(np.repeat(left[:, None], _BYTES, axis=1), right[None]))
        left, right = np.broadcast_arrays(*inputs)
        return (looked_up(tables[0], left, right),)

    return kernel


def looked_up(table: Array, x: Array, other: Array | None = None) -> Array:
    """Bytes of a `table` (256, width) by `x`, and by `other` or the last axis of `x`."""
    limits.allow(x.shape, table.dtype)
    out = buffer_pool.empty(x.shape, table.dtype)
    kernels, table = loaded("tables"), np.ascontiguousarray(table).view(np.uint8)
    flat = [_flat(each) for each in (x, other, out) if each is not None]
    width = table.shape[1] if other is None else 1
    parts = parallel.pieces(out.size // width, max(parallel.BLOCK // width, 1))

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
