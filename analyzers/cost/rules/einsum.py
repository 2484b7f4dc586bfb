"""Einstein sums, evaluated as one loop nest over all labels."""

import math

from tracer.analyzers.cost.count import Count, UnknownWorkError
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts


@counts("Einsum")
def _einsum(op: Operation) -> Count:
    """Counts the terms of the loop nest; each term is a product of all operands.

    If a label is summed, a term of two operands is a MAC, each further operand adds a
    multiplication, and a term of one operand is an addition. Else only multiplications count.
    """
    sizes, output_labels = _labels(op)
    terms = math.prod(sizes.values())
    operands = len(op.node.inputs)
    if output_labels == set(sizes):
        return Count(muls=operands - 1) * terms
    if operands == 1:
        return Count(adds=terms)
    return Count(macs=1, muls=operands - 2) * terms


def _labels(op: Operation) -> tuple[dict[str, int], set[str]]:
    """Returns the size of every label, and the labels of the output."""
    left, arrow, right = op.text("equation", "").replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for index, term in enumerate(left.split(",")):
        shape = op.input(index).shape
        labels = _expand(term, len(shape))
        if len(labels) != len(shape):
            raise UnknownWorkError(f"'{term}' does not fit the shape {list(shape)}")
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size)
    if not arrow:  # without an output term: the labels that occur once, and the ellipsis
        return sizes, {name for name in sizes if left.count(name) == 1 or name.startswith(".")}
    return sizes, set(_expand(right, len(op.output().shape)))


def _expand(term: str, rank: int) -> list[str]:
    """Returns a label per axis; axes of an ellipsis are numbered from the last, to broadcast."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f".{axis}" for axis in range(hidden, 0, -1)), *after]
