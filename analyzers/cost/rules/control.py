"""Control flow, sequences and optionals: only their bodies count.

Tensors that a Loop or Scan carries from step to step, slices or stacks count as views.
"""

from tracer.analyzers.cost import traffic
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, no_work
from tracer.analyzers.cost.traffic import Bytes

counts("If", "Loop", "Scan", "SequenceMap", moves=traffic.nothing)(no_work)
counts("Optional", "OptionalGetElement", "OptionalHasElement", moves=traffic.nothing)(no_work)
counts("SequenceConstruct", "SequenceEmpty", "SequenceLength", moves=traffic.nothing)(no_work)
counts("SequenceAt", "SequenceErase", moves=traffic.nothing, settings=(1,))(no_work)
counts("SequenceInsert", moves=traffic.nothing, settings=(2,))(no_work)


def _joins(op: Operation) -> tuple[Bytes, Bytes]:
    """A sequence has no size of its own; the bytes read are the bytes written."""
    written = traffic.total(op.outputs())
    return written, written


def _splits(op: Operation) -> tuple[Bytes, Bytes]:
    read = op.input(0).nbytes
    return read, read


counts("ConcatFromSequence", moves=_joins)(no_work)
counts("SplitToSequence", moves=_splits, settings=(1,))(no_work)
