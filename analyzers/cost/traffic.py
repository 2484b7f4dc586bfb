"""Bytes that an operator reads and writes: each input and output once, or as its rule says.

Caches are not modelled: a tensor that one operator reads twice counts once.
"""

from collections.abc import Callable, Iterable

from tracer.analyzers.cost.operation import LARGEST, Operand, Operation

Bytes = int | None
Traffic = Callable[[Operation], tuple[Bytes, Bytes]]
"""Returns bytes read and bytes written by one execution; None is unknown."""


def everything(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads its inputs, writes its outputs."""
    return total(op.inputs()), total(op.outputs())


def nothing(op: Operation) -> tuple[Bytes, Bytes]:
    """Moves nothing: a view, or control flow whose body counts separately."""
    return 0, 0


def only_writes(op: Operation) -> tuple[Bytes, Bytes]:
    """Writes its output and reads no data."""
    return 0, total(op.outputs())


def selects(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads the selected part of its first input, and the other inputs."""
    written = total(op.outputs())
    selectors = total(operand for operand in op.inputs() if operand.name != op.node.inputs[0])
    return known_sum((written, selectors)), written


def total(operands: Iterable[Operand]) -> Bytes:
    """Returns the bytes of all operands, or None if one is unknown."""
    return known_sum([operand.nbytes for operand in operands])


def known_sum(parts: Iterable[int | None]) -> int | None:
    """Returns the sum, or None if a part is unknown or the sum has more than 64 bits."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total if total <= LARGEST else None
