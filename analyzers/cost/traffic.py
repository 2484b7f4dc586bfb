"""Bytes an operator must touch: each input and output once, unless its rule names another of these.

Caches are not modelled: a tensor that is read twice by one operator counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from analyzers.cost.operation import Operand, Operation

Bytes = int | None
Traffic = Callable[[Operation], tuple[Bytes, Bytes]]
"""Bytes read and bytes written by one execution; None is not known."""


def everything(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads its inputs, writes its outputs."""
    return total(op.inputs()), total(op.outputs())


def nothing(op: Operation) -> tuple[Bytes, Bytes]:
    """A view of its input, or control flow whose body is counted by itself."""
    return 0, 0


def only_writes(op: Operation) -> tuple[Bytes, Bytes]:
    """Makes its output from nothing, or from the mere shape of its input."""
    return 0, total(op.outputs())


def selects(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads what it writes of its first input, and the inputs that say which part that is."""
    written = total(op.outputs())
    told = total(operand for operand in op.inputs() if operand.name != op.node.proto.input[0])
    return _sum((written, told)), written


def total(operands: Iterable[Operand]) -> Bytes:
    """Bytes of all of them, or None where one is not known."""
    return _sum(operand.nbytes for operand in operands)


def _sum(parts: Iterable[Bytes]) -> Bytes:
    known = 0
    for part in parts:
        if part is None:
            return None
        known += part
    return known
