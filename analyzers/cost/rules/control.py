"""Control flow, sequences and optionals: only their bodies count.

Tensors that a Loop or Scan carries from step to step, slices or stacks count as views.
"""

from analyzers.cost import traffic
from analyzers.cost.count import NOTHING, Count
from analyzers.cost.operation import Operation
from analyzers.cost.registry import counts
from analyzers.cost.traffic import Bytes


@counts("If", "Loop", "Scan", "SequenceMap", moves=traffic.nothing)
@counts("Optional", "OptionalGetElement", "OptionalHasElement", moves=traffic.nothing)
@counts("SequenceConstruct", "SequenceEmpty", "SequenceLength", moves=traffic.nothing)
@counts("SequenceAt", "SequenceErase", moves=traffic.nothing, settings=(1,))
@counts("SequenceInsert", moves=traffic.nothing, settings=(2,))
def _forwards(op: Operation) -> Count:
    return NOTHING


def _joins(op: Operation) -> tuple[Bytes, Bytes]:
    """A sequence has no size of its own; the bytes read are the bytes written."""
    written = traffic.total(op.outputs())
    return written, written


@counts("ConcatFromSequence", moves=_joins)
def _concat(op: Operation) -> Count:
    return NOTHING


def _splits(op: Operation) -> tuple[Bytes, Bytes]:
    read = op.input(0).nbytes
    return read, read


@counts("SplitToSequence", moves=_splits, settings=(1,))
def _split(op: Operation) -> Count:
    return NOTHING
